"use strict";
/* The form of a page: shows the rows of what is chosen, as Python ranked and worded them (pages/advice.py). The address
 * holds the choice, under the names that scripts/advise.py gives its options. Without JavaScript it stays hidden. */
(() => {
  const root = document.getElementById("choose");
  const known = JSON.parse(document.getElementById("known").textContent);
  const form = root.querySelector("form");
  const at = (name) => form.elements.namedItem(name);
  const columns = Object.entries(known.rows).map(([name, [places, values]]) => [name, places.map((place) => values[place])]);
  const rows = columns[0][1].map((_, index) => Object.fromEntries(columns.map(([name, values]) => [name, values[index]])));
  const needs = known.rows.need[1];
  const USUAL = {
    from: "numpy", to: "torch", nbytes: "1MiB", dtype: "float32", "to-dtype": "same", layout: "contiguous",
    memory: "any", threads: known.threads[0]?.[0] ?? "", source: "pageable", grad: false, batch: false, enqueue: false,
  };
  const MEMORIES = { any: ["alias", "copy"], own: ["copy"], share: ["alias"], "into-buffer": ["into"] };
  const GOOD = ["best", "tie", "slower", "undecided"]; // kinds of rows that may be taken
  const UNITS = { "": 1, k: 1e3, m: 1e6, g: 1e9, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30 };

  const fact = (tag, ...parts) => {
    const node = document.createElement(tag);
    node.append(...parts);
    return node;
  };
  const chosen = () =>
    Object.fromEntries(Object.entries(USUAL).map(([name, usual]) => [name, typeof usual === "boolean" ? at(name).checked : at(name).value.trim()]));

  function bytesOf(text) {
    const found = text.match(/^\s*(\d+(?:\.\d+)?)\s*(|[kmg]i?)b?\s*$/i);
    const nbytes = found ? Number(found[1]) * UNITS[found[2].toLowerCase()] : NaN;
    return Number.isInteger(nbytes) && nbytes > 0 ? nbytes : NaN;
  }
  /* ``exact``: in a unit in which it is whole, so that bytesOf reads the same. */
  function sizeOf(nbytes, exact = false) {
    let power = Math.min(3, Math.floor(Math.log2(nbytes) / 10));
    while (exact && nbytes % 1024 ** power) power -= 1;
    return `${Number((nbytes / 1024 ** power).toPrecision(exact ? 15 : 4))} ${["B", "KiB", "MiB", "GiB"][power]}`;
  }

  /* The needs that are chosen; ``but`` leaves out a field of the form. */
  function needed(text, but = "") {
    const [direction, array] = known.ways[`${text.from} ${text.to}`] ?? [];
    const { dtype, layout, grad, batch, enqueue } = text;
    const wanted = { direction, array, dtype, goal: text["to-dtype"].replace("same", ""), layout, grad, batch, enqueue };
    delete wanted[but];
    const fits = (need) => ["", text.source].includes(need.host) && ["", text.threads].includes(need.threads) && Object.entries(wanted).every(([name, value]) => need[name] === value);
    const found = needs.filter(fits);
    if (but === "memory") return found;
    const memory = MEMORIES[text.memory].find((each) => found.some((need) => need.memory === each));
    return found.filter((need) => need.memory === memory);
  }

  /* Of each field the values that go with the others, so that something can be shown; what was chosen stays where it can. */
  function adapt() {
    const offer = (name, values) => {
      const select = at(name);
      for (const option of select.options) option.hidden = option.disabled = !values.has(option.value);
      if (!values.has(select.value) && values.size) [select.value] = values;
    };
    const ends = Object.keys(known.ways).filter((pair) => needs.some((need) => need.direction === known.ways[pair][0] && need.array === known.ways[pair][1]));
    if (!ends.includes(`${at("from").value} ${at("to").value}`)) at("to").value = (ends.find((pair) => pair.startsWith(`${at("from").value} `)) ?? ends[0]).split(" ")[1];
    for (const option of root.querySelectorAll("option[value=cuda]"))
      if (!ends.some((pair) => pair.includes("cuda"))) {
        option.disabled = true;
        option.textContent = "cuda: not measured";
      }
    for (const [field, name] of [["dtype", "dtype"], ["goal", "to-dtype"], ["layout", "layout"]])
      offer(name, new Set(needed(chosen(), field).map((need) => need[field] || "same")));
    const memories = needed(chosen(), "memory").map((need) => need.memory);
    offer("memory", new Set(Object.keys(MEMORIES).filter((name) => MEMORIES[name].some((memory) => memories.includes(memory)))));
    for (const name of ["grad", "batch", "enqueue"]) {
      const may = needed({ ...chosen(), [name]: !at(name).checked }).length > 0;
      at(name).disabled = !may && !at(name).checked;
      at(name).closest("label").hidden = at(name).disabled;
    }
    const device = [at("from").value, at("to").value].includes("cuda");
    at("source").closest("label").hidden = !device;
    at("threads").closest("label").hidden = device;
    document.getElementById("sizes").replaceChildren(...sizes(needed(chosen())).map((size) => new Option(sizeOf(size, true).replace(" ", ""))));
  }

  const sizes = (wanted) =>
    [...new Set(rows.filter((row) => wanted.includes(row.need) && GOOD.includes(row.kind)).map((row) => row.nbytes))].sort((one, other) => one - other);

  function update(remember = true) {
    const text = chosen();
    const [wanted, nbytes] = [needed(text), bytesOf(text.nbytes)];
    const all = sizes(wanted);
    const near = all.includes(nbytes) ? [nbytes] : [all.filter((size) => size < nbytes).at(-1), all.find((size) => size > nbytes)].filter(Boolean);
    const parts = [];
    if (!all.length) parts.push(fact("p", "Nothing was measured for this choice."));
    else if (!near.length) parts.push(fact("p", `Write the size in bytes, such as 4096, 3MiB or 3MB.`));
    else if (near[0] !== nbytes) parts.push(fact("p", `${sizeOf(nbytes)} was not measured. Shown: ${near.map(sizeOf).join(" and ")}.`));
    for (const size of near) parts.push(...answer(rows.filter((row) => wanted.includes(row.need) && row.nbytes === size), size));
    root.querySelector(".chosen").replaceChildren(...parts);
    const changed = Object.entries(text).filter(([name, value]) => value !== USUAL[name] || ["from", "to", "nbytes"].includes(name));
    if (remember) history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
  }

  const line = (row) => [fact("code", row.route), `, ${row.cost}`];
  const notesOf = (row) => row.notes.split("\n").filter(Boolean);

  function answer(here, size) {
    const good = here.filter((row) => GOOD.includes(row.kind));
    const list = fact("ol", ...good.slice(0, known.shown).map((row) => fact("li", ...line(row))));
    const notes = notesOf(good[0]).map((note) => fact("li", fact("code", good[0].route), `: ${note}`));
    for (const [kind, said] of [["condition", "faster on a condition"], ["unsafe", "faster, but not recommended"]])
      notes.push(...here.filter((row) => row.kind === kind).map((row) => fact("li", `${said}: `, ...line(row), ...notesOf(row).slice(0, 1).map((note) => `: ${note}`))));
    const code = fact("pre", fact("code", here.find((row) => row.code).code));
    code.tabIndex = 0;
    const copy = fact("button", "Copy");
    copy.type = "button";
    copy.onclick = async () => {
      const done = await navigator.clipboard?.writeText(code.textContent).then(() => true, () => false);
      if (!done) getSelection().selectAllChildren(code); // where a page may not write there, so that a key does it
      copy.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    };
    const block = fact("div", copy, code);
    block.className = "paste";
    const rest = good.length - known.shown;
    return [fact("h3", sizeOf(size)), list, ...(rest > 0 ? [fact("p", `and ${rest} more`)] : []), block, fact("ul", ...notes)];
  }

  /* The choice of the address, where it holds one. */
  function linked() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    for (const [name, usual] of Object.entries({ ...USUAL, ...("from" in given ? given : {}) })) {
      if (typeof USUAL[name] === "boolean") at(name).checked = String(usual) === "true";
      else if (name in USUAL) at(name).value = usual;
    }
    adapt();
    update(false);
  }

  const fill = (name, values) => at(name).append(...[...new Set(values)].map((value) => new Option(value, value)));
  for (const name of ["from", "to"]) fill(name, ["numpy", "torch", "cuda"]);
  at("threads").append(...known.threads.map(([value, text]) => new Option(text, value)));
  fill("dtype", needs.map((need) => need.dtype));
  fill("to-dtype", ["same", ...needs.map((need) => need.goal).filter(Boolean)]);
  fill("layout", ["contiguous", ...needs.map((need) => need.layout)]);
  form.onsubmit = (event) => event.preventDefault();
  form.oninput = () => {
    adapt();
    update();
  };
  window.addEventListener("hashchange", linked);
  root.hidden = false;
  linked();
})();
