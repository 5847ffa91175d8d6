"use strict";
/* What a page adds where JavaScript runs: tables that sort and filter, and links that open what is folded. */
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
})();
