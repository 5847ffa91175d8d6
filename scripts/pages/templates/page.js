"use strict";
/* What a page adds where JavaScript runs: tables that sort and filter, and panels that say what a point is. */
(() => {
  const SCALE = { ns: 1e-9, µs: 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
  const MANY = 8; // rows from which on a table has a filter

  /* What a cell is sorted by: its first number in its unit, else its text. */
  function keyOf(cell) {
    const text = (cell.querySelector("div") ?? cell).textContent.trim();
    const matched = text.match(/^[<~−-]?\s*(\d[\d,]*(?:\.\d+)?|\.\d+)\s*(\S*)/);
    return matched ? Number(matched[1].replaceAll(",", "")) * (SCALE[matched[2]] ?? 1) : text.toLowerCase();
  }

  function compare(key, other) {
    if (typeof key !== typeof other) return typeof key === "number" ? -1 : 1; // numbers first, then words, then nothing
    if (key === "" || other === "") return (key === "") - (other === "");
    return key < other ? -1 : key > other ? 1 : 0;
  }

  function sortable(table) {
    const [body] = table.tBodies;
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (head.querySelector("a")) return; // a button holds no link
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.onclick = () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort ?? "none"];
        for (const each of heads) each.removeAttribute("aria-sort");
        if (next !== "none") head.setAttribute("aria-sort", next);
        const sign = next === "descending" ? -1 : 1;
        const keyed = rows.map((row) => [keyOf(row.cells[column]), row]);
        if (next !== "none") keyed.sort(([key], [other]) => (key === "" || other === "" ? compare(key, other) : sign * compare(key, other)));
        body.append(...keyed.map(([, row]) => row));
      };
    });
    if (rows.length < MANY) return;
    const filter = document.createElement("input");
    filter.type = "search";
    filter.className = "filter";
    filter.placeholder = `filter ${rows.length} rows`;
    filter.setAttribute("aria-label", `Filter the rows of ${table.closest(".scroll").ariaLabel}`);
    filter.oninput = () => {
      const words = filter.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    };
    table.closest(".scroll").before(filter);
  }

  /* A link into what is folded opens it. The address of a case names a section as ``at``. */
  const unfold = () => {
    const section = new URLSearchParams(location.hash.slice(1)).get("at");
    const target = document.getElementById(section ?? decodeURIComponent(location.hash.slice(1)));
    target?.closest("details.folded")?.setAttribute("open", "");
    if (section) target?.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  for (const table of document.querySelectorAll(".scroll:not(.heat) > table:not(.take)")) if (table.tBodies[0]?.rows.length > 1) sortable(table);

  /* The nearest point of a figure's series, said by the row of its table: series and rows are in one order. */
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
