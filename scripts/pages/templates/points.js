"use strict";
/* What a point of a figure is: said by the row of its table, next to the pointer. Series and rows are in one order. */
(() => {
  const REACH = 14; // pixels
  const said = document.createElement("div");
  said.className = "said";
  said.hidden = true;
  said.setAttribute("aria-hidden", "true"); // the table below the figure has it for who does not point
  document.body.append(said);

  function pointsOf(figure, table, rows) {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    return [...figure.querySelectorAll('g[id*="-points-"]')].flatMap((group) => {
      const row = rows[Number(group.id.match(/-points-(\d+)$/)[1])];
      const cells = row ? [...row.cells].slice(1).map((cell, place) => [names[place + 1], cell]) : [];
      const there = cells.filter(([, cell]) => /^[<~]?\s*[\d.]/.test(cell.textContent.trim()));
      return [...group.querySelectorAll("use")].map((mark, place) => ({ mark, row, cell: there[place] }));
    });
  }

  for (const figure of document.querySelectorAll("figure")) {
    let points;
    const [drawing, table] = [figure.querySelector(".drawing"), figure.querySelector("details table")];
    const rows = [...table.tBodies[0].rows]; // in the figure's order, before anybody sorts them
    drawing.addEventListener("pointermove", (event) => {
      points ??= pointsOf(figure, table, rows);
      let [best, nearest] = [null, REACH];
      for (const point of points) {
        const box = point.mark.getBoundingClientRect();
        const away = Math.hypot(event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
        if (point.cell && away < nearest) [best, nearest] = [point, away];
      }
      said.hidden = !best;
      if (!best) return;
      const [column, cell] = best.cell;
      const lines = cell.querySelectorAll("div");
      said.textContent = `${best.row.cells[0].textContent} · ${column}: ${[...(lines.length ? lines : [cell])].map((line) => line.textContent).join(", ")}`;
      said.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - said.offsetWidth - 8))}px`;
      said.style.top = `${event.clientY + 16}px`;
    });
    drawing.addEventListener("pointerleave", () => (said.hidden = true));
  }
})();
