"use strict";
/* The chooser of a page: a form whose answer changes at once. The address holds the case, under the names that
 * scripts/advise.py gives its options; what is said of it is advise.js's. Without JavaScript it stays hidden. */
(() => {
  const root = document.getElementById("choose");
  advise.know(JSON.parse(document.getElementById("known").textContent));
  const { show } = advise;
  const known = advise.known();
  const form = root.querySelector("form");
  const at = (name) => form.elements.namedItem(name);

  // Two steps an octave, as people name sizes: 4 B, 6 B, 8 B, ... 1 GiB
  const SIZES = Array.from({ length: 28 }, (_, k) => [2 ** (k + 2), 1.5 * 2 ** (k + 2)]).flat().concat(2 ** 30);
  const USUAL = { from: "numpy", to: "torch", nbytes: "1MiB", dtype: "float32", layout: "contiguous", memory: "any", source: "any", grad: false, batch: "0", enqueue: false, count: "1" };
  const MEMORIES = { any: "", own: "copy", share: "alias", "into-buffer": "into" };
  const COLOURS = ["accent", "red", "green", "pink", "orange"];

  const fact = (text, ...parts) => {
    const node = document.createElement(text);
    node.append(...parts);
    return node;
  };
  const sentence = (text) => show.spans(text).map(([words, code]) => (code ? fact("code", words) : words));

  /* What is chosen, as text and flags by option. */
  function chosen() {
    const named = Object.keys(USUAL).map((name) => [name, typeof USUAL[name] === "boolean" ? at(name).checked : at(name).value.trim()]);
    return Object.fromEntries(named);
  }

  function caseOf(text) {
    const whole = (name) => {
      if (!/^\d+$/.test(text[name])) throw new Error(`--${name} '${text[name]}' is no whole number`);
      return Number(text[name]);
    };
    return {
      source: text.from, target: text.to, nbytes: advise.size(text.nbytes), dtype: text.dtype, layout: text.layout,
      memory: MEMORIES[text.memory], host: text.source === "any" ? "" : text.source, grad: text.grad,
      batch: whole("batch"), enqueue: text.enqueue, count: whole("count"),
    };
  }

  /* Options that cannot be together are not there to be chosen. */
  function adapt() {
    const offer = (name, values) => {
      const select = at(name);
      for (const option of select.options) option.hidden = option.disabled = !values.includes(option.value);
      if (select.selectedOptions[0]?.disabled) select.value = values[0];
    };
    const there = new Set(known.points.map((point) => point.direction));
    const pairs = Object.keys(known.ways).filter((ends) => there.has(known.ways[ends])).map((ends) => ends.split(" "));
    offer("from", [...new Set(pairs.map(([from]) => from))]);
    offer("to", pairs.filter(([from]) => from === at("from").value).map(([, to]) => to));
    const [from, to] = [at("from").value, at("to").value];
    const device = [from, to].includes("cuda");
    const direction = known.ways[`${from} ${to}`];
    offer("dtype", (known.dtypes[direction] ?? []).filter((dtype) => !known.lacking[`${direction} ${dtype}`]));
    const here = known.points.filter((point) => point.direction === direction);
    offer("layout", ["contiguous", ...new Set(here.map((point) => point.layout).sort())]);
    const batch = Number(at("batch").value) > 0;
    offer("memory", batch ? ["any", "own"] : device ? ["any", "own", "into-buffer"] : Object.keys(MEMORIES));
    const grad = from !== "numpy" && advise.mayRequireGrad(at("dtype").value) && !batch;
    const allowed = { grad, batch: !device, source: device, enqueue: device };
    for (const [name, may] of Object.entries(allowed)) {
      at(name).disabled = !may;
      at(name).closest("label").hidden = !may && ["source", "enqueue"].includes(name);
      if (!may && name === "grad") at(name).checked = false;
      if (!may && name !== "grad") typeof USUAL[name] === "boolean" ? (at(name).checked = false) : (at(name).value = USUAL[name]);
    }
  }

  /* A size as advise.py takes it: 3MiB, 1536. */
  const written = (nbytes) => {
    const text = show.size(nbytes).replace(" ", "");
    return advise.size(text) === nbytes ? text : String(nbytes);
  };

  /* A whole number of elements, where the slider or another dtype left one that is none. */
  function snap(nbytes) {
    const size = advise.itemsize(at("dtype").value);
    const whole = at("layout").value === "0-d" ? size : Math.max(size, Math.round(nbytes / size) * size);
    at("nbytes").value = written(whole);
    return whole;
  }

  function slide(nbytes) {
    const slider = at("slider");
    const near = SIZES.map((size) => Math.abs(Math.log(size / nbytes)));
    slider.value = near.indexOf(Math.min(...near));
    slider.setAttribute("aria-valuetext", show.size(nbytes));
  }

  function update(remember = true) {
    const text = chosen();
    let reply;
    try {
      const it = caseOf(text);
      slide(it.nbytes);
      reply = advise.asJson(it);
    } catch (error) {
      reply = { wrong: error.message };
    }
    root.querySelector(".chosen").replaceChildren(...(reply.wrong ? [fact("p", ...sentence(reply.wrong))] : answer(reply)));
    root.querySelector(".marked").replaceChildren(...(reply.wrong ? [] : [drawing(reply)]));
    if (remember) history.replaceState(null, "", `#${new URLSearchParams(Object.entries(text).filter(([name, value]) => value !== USUAL[name] || ["from", "to", "nbytes"].includes(name)))}`);
  }

  function answer(reply) {
    const [best] = reply.ranked;
    const list = fact("ol");
    for (const [place, candidate] of reply.ranked.slice(0, known.shown).entries()) {
      const swatch = fact("span");
      swatch.className = "swatch";
      swatch.style.background = `var(--${COLOURS[place]})`;
      list.append(fact("li", swatch, ...sentence(candidate.line)));
    }
    const rest = reply.ranked.length - known.shown;
    const notes = fact("ul", ...reply.notes.map((note) => fact("li", ...sentence(note))));
    const code = fact("pre", fact("code", best.code));
    code.tabIndex = 0;
    const copy = fact("button", "Copy");
    copy.type = "button";
    copy.onclick = async () => {
      const done = await navigator.clipboard?.writeText(best.code).then(() => true, () => false);
      if (!done) getSelection().selectAllChildren(code); // where a page may not write there, so that a key does it
      copy.textContent = done ? "Copied" : "Selected: press Ctrl+C";
      setTimeout(() => (copy.textContent = "Copy"), 2000);
    };
    const block = fact("div", copy, code);
    block.className = "paste";
    const title = fact("h3", reply.title);
    return [title, list, ...(rest > 0 ? [fact("p", `and ${rest} slower`)] : []), block, notes];
  }

  /* Seconds against size of the routes that are named, and where the case is on the first. */
  function drawing(reply) {
    const [width, height, left, bottom, top, right] = [520, 300, 58, 34, 14, 14];
    const svg = (name, attributes, ...parts) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      node.append(...parts);
      return node;
    };
    const lines = reply.candidates.slice(0, known.shown).map((candidate) => advise.line(reply.case, candidate));
    const every = lines.flat();
    const [sizes, times] = [every.map(([size]) => size), every.map(([, seconds]) => seconds)];
    const [low, high] = [Math.log2(Math.min(...sizes)) - 0.5, Math.log2(Math.max(...sizes)) + 0.5];
    const [quick, slow] = [Math.floor(Math.log10(Math.min(...times))), Math.ceil(Math.log10(Math.max(...times)) + 1e-9)];
    const x = (size) => left + ((Math.log2(size) - low) / (high - low)) * (width - left - right);
    const y = (seconds) => height - bottom - ((Math.log10(seconds) - quick) / (slow - quick)) * (height - top - bottom);
    const [best] = reply.ranked;
    const label = `Time against size of the routes named, marked at ${show.size(reply.case.total)}: ${show.seconds(best.seconds)}`;
    const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    for (let power = quick; power <= slow; power += 1)
      chart.append(
        svg("line", { x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }),
        svg("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, show.seconds(10 ** power).replace(/\.0+(?= )/, "")),
      );
    for (let power = Math.ceil(low / 5) * 5; power <= high; power += 5)
      chart.append(svg("text", { x: x(2 ** power), y: height - bottom + 18, "text-anchor": "middle" }, show.size(2 ** power)));
    const here = reply.case.total;
    chart.append(svg("line", { x1: x(here), x2: x(here), y1: top, y2: height - bottom, class: "here" }));
    for (const [place, line] of [...lines.entries()].reverse()) {
      const colour = `var(--${COLOURS[place]})`;
      const points = line.map(([size, seconds]) => `${x(size).toFixed(1)},${y(seconds).toFixed(1)}`);
      chart.append(svg("polyline", { points: points.join(" "), style: `stroke: ${colour}`, class: "line" }));
      for (const [size, seconds] of line)
        if (reply.candidates[place].sizes.includes(size))
          chart.append(svg("circle", { cx: x(size), cy: y(seconds), r: 2.5, style: `fill: ${colour}` }));
    }
    chart.append(svg("circle", { cx: x(here), cy: y(best.seconds), r: 6, class: "mark" }));
    return chart;
  }

  /* The case of the address, where it holds one. */
  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (!given.has("from")) return false;
    for (const [name, usual] of Object.entries({ ...USUAL, ...Object.fromEntries(given) })) {
      if (!(name in USUAL)) continue;
      if (typeof USUAL[name] === "boolean") at(name).checked = String(usual) === "true";
      else at(name).value = usual;
    }
    return true;
  }

  for (const name of ["from", "to", "dtype", "layout"])
    for (const value of { from: ["numpy", "torch", "cuda"], to: ["numpy", "torch", "cuda"], dtype: [...new Set(Object.values(known.dtypes).flat())], layout: ["contiguous", ...new Set(known.points.map((point) => point.layout).filter((layout) => layout !== "contiguous").sort())] }[name])
      at(name).append(new Option(value));
  Object.assign(at("slider"), { min: 0, max: SIZES.length - 1, step: 1 });
  for (const [name, usual] of Object.entries(USUAL)) if (typeof usual === "string") at(name).value = usual;
  form.onsubmit = (event) => event.preventDefault();
  form.oninput = (event) => {
    adapt();
    if (event.target === at("slider")) snap(SIZES[at("slider").value]);
    else if (event.target !== at("nbytes"))
      try {
        snap(advise.size(at("nbytes").value));
      } catch {
        // the answer says what is wrong with it
      }
    update();
  };
  const linked = () => {
    if (read()) adapt();
    update(false);
  };
  window.addEventListener("hashchange", linked);
  root.hidden = false;
  adapt();
  linked();
})();
