"use strict";
/* The form of a page: shows the rows of what is chosen, as Python ranked and worded them (pages/case.py). The address
 * holds the choice, under the names that scripts/advise.py gives its options. Without JavaScript it stays hidden. */
(() => {
  const root = document.getElementById("choose");
  const known = JSON.parse(document.getElementById("known").textContent);
  const form = root.querySelector("form");
  const at = (name) => form.elements.namedItem(name);
  const NAMES = ["direction", "memory", "dtype", "goal", "layout", "grad", "batch", "threads", "host", "array", "enqueue"];
  const needs = known.needs.map((values) => Object.fromEntries(values.map((value, place) => [NAMES[place], value])));
  const rows = known.rows.map(([need, nbytes, route, kind, seconds, cost, code]) => ({
    need, nbytes, seconds, cost, kind: known.words[kind], route: known.words[route], key: `${need} ${route}`, code: known.words[code],
  }));
  const USUAL = {
    from: "numpy", to: "torch", nbytes: "1MiB", dtype: "float32", "to-dtype": "same", layout: "contiguous",
    memory: "any", threads: known.threads[0]?.[0] ?? "", source: "pageable", grad: false, batch: false, enqueue: false,
  };
  const MEMORIES = { any: ["alias", "copy"], own: ["copy"], share: ["alias"], "into-buffer": ["into"] };
  const GOOD = ["best", "tie", "slower", "undecided"]; // kinds of rows that may be taken
  const COLOURS = ["accent", "red", "green", "pink", "orange"];
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
  function sizeOf(nbytes) {
    const power = Math.min(3, Math.floor(Math.log2(nbytes) / 10));
    return `${Number((nbytes / 1024 ** power).toPrecision(3))} ${["B", "KiB", "MiB", "GiB"][power]}`;
  }

  /* The places of the needs that are chosen; ``but`` leaves out a field of the form. */
  function needed(text, but = "") {
    const way = known.ways[`${text.from} ${text.to}`] ?? [];
    const wanted = {
      direction: way[0], array: way[1], dtype: text.dtype, goal: text["to-dtype"] === "same" ? "" : text["to-dtype"],
      layout: text.layout, grad: text.grad, batch: text.batch, enqueue: text.enqueue,
    };
    delete wanted[but];
    const host = (need) => (need.host === "" || need.host === text.source) && (need.threads === "" || need.threads === text.threads);
    const places = [...needs.keys()].filter((place) => host(needs[place]) && Object.entries(wanted).every(([name, value]) => needs[place][name] === value));
    if (but === "memory") return places;
    const memory = MEMORIES[text.memory].find((each) => places.some((place) => needs[place].memory === each));
    return places.filter((place) => needs[place].memory === memory);
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
    for (const name of ["from", "to"])
      for (const option of at(name).options)
        if (option.value === "cuda" && !ends.some((pair) => pair.includes("cuda"))) {
          option.disabled = true;
          option.textContent = "cuda: not measured";
        }
    for (const [field, name] of [["dtype", "dtype"], ["goal", "to-dtype"], ["layout", "layout"]])
      offer(name, new Set(needed(chosen(), field).map((place) => needs[place][field] || "same")));
    const memories = new Set(needed(chosen(), "memory").map((place) => needs[place].memory));
    offer("memory", new Set(Object.keys(MEMORIES).filter((name) => MEMORIES[name].some((memory) => memories.has(memory)))));
    for (const name of ["grad", "batch", "enqueue"]) {
      const may = needed({ ...chosen(), [name]: !at(name).checked }).length > 0;
      at(name).disabled = !may && !at(name).checked;
      at(name).closest("label").hidden = at(name).disabled;
    }
    const device = [at("from").value, at("to").value].includes("cuda");
    at("source").closest("label").hidden = !device;
    at("threads").closest("label").hidden = device;
    document.getElementById("sizes").replaceChildren(...sizes(needed(chosen())).map((size) => new Option(sizeOf(size).replace(" ", ""))));
  }

  const ranked = (places) => rows.filter((row) => places.includes(row.need) && GOOD.includes(row.kind));
  const sizes = (places) => [...new Set(ranked(places).map((row) => row.nbytes))].sort((one, other) => one - other);

  function update(remember = true) {
    const text = chosen();
    const [places, nbytes] = [needed(text), bytesOf(text.nbytes)];
    const all = sizes(places);
    const near = all.includes(nbytes) ? [nbytes] : [all.filter((size) => size < nbytes).at(-1), all.find((size) => size > nbytes)].filter(Boolean);
    const parts = [];
    if (!all.length) parts.push(fact("p", "Nothing was measured for this choice."));
    else if (!near.length) parts.push(fact("p", `Write the size in bytes, such as 4096, 3MiB or 3MB.`));
    else if (near[0] !== nbytes) parts.push(fact("p", `${sizeOf(nbytes)} was not measured. Shown: ${near.map(sizeOf).join(" and ")}.`));
    for (const size of near) parts.push(...answer(places, size));
    root.querySelector(".chosen").replaceChildren(...parts);
    root.querySelector(".marked").replaceChildren(...(near.length ? [drawing(places, near[0], nbytes)] : []));
    const changed = Object.entries(text).filter(([name, value]) => value !== USUAL[name] || ["from", "to", "nbytes"].includes(name));
    if (remember) history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
  }

  const line = (row) => [fact("code", row.route), `, ${row.cost}`];

  function answer(places, size) {
    const here = rows.filter((row) => places.includes(row.need) && row.nbytes === size);
    const good = here.filter((row) => GOOD.includes(row.kind));
    const list = fact("ol", ...good.slice(0, known.shown).map((row, place) => {
      const swatch = fact("span");
      swatch.className = "swatch";
      swatch.style.background = `var(--${COLOURS[place]})`;
      return fact("li", swatch, ...line(row));
    }));
    const notes = known.about[good[0].key].map((note) => fact("li", fact("code", good[0].route), `: ${known.words[note]}`));
    for (const [kind, said] of [["condition", "faster on a condition"], ["unsafe", "faster, but not recommended"]])
      notes.push(...here.filter((row) => row.kind === kind).map((row) => fact("li", `${said}: `, ...line(row), ...known.about[row.key].slice(0, 1).map((note) => `: ${known.words[note]}`))));
    const code = fact("pre", fact("code", good[0].code ?? here.find((row) => row.code).code));
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

  /* Seconds against size of the routes that are named, and where the size is. */
  function drawing(places, size, nbytes) {
    const [width, height, left, bottom, top, right] = [520, 300, 58, 34, 14, 14];
    const svg = (name, attributes, ...parts) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      node.append(...parts);
      return node;
    };
    const named = ranked(places).filter((row) => row.nbytes === size).slice(0, known.shown).map((row) => row.key);
    const lines = named.map((key) => ranked(places).filter((row) => row.key === key).sort((one, other) => one.nbytes - other.nbytes));
    const every = lines.flat();
    const [low, high] = [Math.log2(Math.min(nbytes, ...every.map((row) => row.nbytes))) - 0.5, Math.log2(Math.max(nbytes, ...every.map((row) => row.nbytes))) + 0.5];
    const times = every.map((row) => row.seconds);
    const [quick, slow] = [Math.floor(Math.log10(Math.min(...times))), Math.ceil(Math.log10(Math.max(...times)) + 1e-9)];
    const x = (bytes) => left + ((Math.log2(bytes) - low) / (high - low)) * (width - left - right);
    const y = (seconds) => height - bottom - ((Math.log10(seconds) - quick) / (slow - quick)) * (height - top - bottom);
    const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Time against size of the routes named, marked at ${sizeOf(nbytes)}` });
    for (let power = quick; power <= slow; power += 1) {
      const unit = Math.max(0, Math.min(3, Math.ceil(-power / 3)));
      const text = `${Math.round(10 ** (power + 3 * unit))} ${["s", "ms", "µs", "ns"][unit]}`;
      chart.append(svg("line", { x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }));
      chart.append(svg("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, text));
    }
    for (let power = Math.ceil(low / 5) * 5; power <= high; power += 5)
      chart.append(svg("text", { x: x(2 ** power), y: height - bottom + 18, "text-anchor": "middle" }, sizeOf(2 ** power)));
    chart.append(svg("line", { x1: x(nbytes), x2: x(nbytes), y1: top, y2: height - bottom, class: "here" }));
    for (const [place, points] of [...lines.entries()].reverse()) {
      const colour = `var(--${COLOURS[place]})`;
      const path = points.map((row) => `${x(row.nbytes).toFixed(1)},${y(row.seconds).toFixed(1)}`).join(" ");
      chart.append(svg("polyline", { points: path, style: `stroke: ${colour}`, class: "line" }));
      for (const row of points) chart.append(svg("circle", { cx: x(row.nbytes), cy: y(row.seconds), r: 2.5, style: `fill: ${colour}` }));
    }
    return chart;
  }

  /* The choice of the address, where it holds one. */
  function read() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    for (const [name, usual] of Object.entries({ ...USUAL, ...("from" in given ? given : {}) })) {
      if (typeof USUAL[name] === "boolean") at(name).checked = String(usual) === "true";
      else if (name in USUAL) at(name).value = usual;
    }
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
  const linked = () => {
    read();
    adapt();
    update(false);
  };
  window.addEventListener("hashchange", linked);
  root.hidden = false;
  linked();
})();
