"use strict";
/* The form of a page: shows the rows of what is chosen, as Python ranked and worded them (pages/advice.py). A choice that
 * was not measured is kept, and the form says what it shows instead. The address holds the choice, under the names that
 * scripts/advise.py gives its options. Without JavaScript the form stays hidden. */
(() => {
  const root = document.getElementById("choose");
  const known = JSON.parse(document.getElementById("known").textContent);
  const form = root.querySelector("form");
  const at = (name) => form.elements.namedItem(name);
  const columns = Object.entries(known.rows).map(([name, [places, values]]) => [name, places.map((place) => values[place])]);
  const rows = columns[0][1].map((_, index) => Object.fromEntries(columns.map(([name, values]) => [name, values[index]])));
  const needs = known.rows.need[1];
  const USUAL = { ...known.usual, threads: known.threads[0]?.[0] ?? "" };
  const chosen = { ...USUAL }; // by the reader; a field shows what was measured
  const MEMORIES = { any: ["alias", "copy"], own: ["copy"], share: ["alias"], "into-buffer": ["into"] };
  /* Of each field the values with which it asks for a need. A field offers those that go with the fields above it. */
  const FIELDS = {
    from: (need) => waysOf(need).map(([source]) => source),
    to: (need) => waysOf(need).filter(([source]) => source === at("from").value).map(([, target]) => target),
    dtype: (need) => [need.dtype],
    "to-dtype": (need) => [need.goal || "same"],
    layout: (need) => [need.layout],
    memory: (need) => Object.keys(MEMORIES).filter((name) => MEMORIES[name].includes(need.memory)),
    batch: (need) => [`${need.arrays}`],
    "read-only": () => (at("from").value === "numpy" ? [false, true] : [false]),
    grad: (need) => [need.grad],
    enqueue: (need) => [need.enqueue],
    threads: (need) => [need.threads || chosen.threads],
    source: (need) => [need.host || chosen.source],
  };
  const waysOf = (need) =>
    Object.keys(known.ways).filter((pair) => known.ways[pair][0] === need.direction && known.ways[pair][1] === need.array).map((pair) => pair.split(" "));
  const UNMEASURED = "not measured";
  const GOOD = ["best", "tie", "slower", "undecided"]; // kinds of rows that may be taken
  const UNITS = { "": 1, k: 1e3, m: 1e6, g: 1e9, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30 };

  const fact = (tag, ...parts) => {
    const node = document.createElement(tag);
    node.append(...parts);
    return node;
  };
  const read = (field) => (field.type === "checkbox" ? field.checked : field.value.trim());

  /* Bytes of "3MiB", "1e6" or, of numbers of ``itemsize`` bytes, "1080x1920x3"; NaN of anything else. */
  function bytesOf(text, itemsize = 1) {
    const found = text.match(/^\s*(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*(|[kmg]i?)b?\s*$/i);
    const shape = text.match(/^\s*\d+(?:x\d+)+\s*$/i);
    const nbytes = found ? Number(found[1]) * UNITS[found[2].toLowerCase()] : NaN;
    const all = shape ? text.toLowerCase().split("x").reduce((product, length) => product * Number(length), itemsize) : nbytes;
    return Number.isInteger(all) && all > 0 ? all : NaN;
  }
  const itemsizeOf = (dtype) => Math.max(1, Number(dtype.match(/\d+/)?.[0] ?? 8) / 8);
  /* ``exact``: in a unit in which it is whole, so that bytesOf reads the same. */
  function sizeOf(nbytes, exact = false) {
    let power = Math.min(3, Math.floor(Math.log2(nbytes) / 10));
    while (exact && nbytes % 1024 ** power) power -= 1;
    return `${Number((nbytes / 1024 ** power).toPrecision(exact ? 15 : 4))} ${["B", "KiB", "MiB", "GiB"][power]}`;
  }

  const text = (nbytes) => sizeOf(nbytes, true).replace(" ", "");
  const label = (field) => field.closest("label");
  const titleOf = (field) => (field.type === "checkbox" ? label(field) : label(field).firstChild).textContent.trim();
  const nameOf = (field, value) => [...field.options].find((option) => option.value === value)?.text ?? value;

  /* The needs that are chosen, and what fields show instead of a choice that was not measured with those above it. */
  function needed() {
    const replaced = [];
    let found = needs;
    for (const [name, values] of Object.entries(FIELDS)) {
      const [field, measured] = [at(name), new Set(found.flatMap(values))];
      const isFlag = field.type === "checkbox";
      for (const option of field.options ?? []) {
        option.disabled = !measured.has(option.value);
        option.hidden = option.disabled && !option.text.includes(UNMEASURED);
      }
      const value = measured.has(chosen[name]) ? chosen[name] : isFlag ? !chosen[name] : [...field.options].find((option) => !option.disabled).value;
      if (isFlag) [field.checked, label(field).hidden] = [value, measured.size < 2];
      else field.value = value;
      if (value !== chosen[name]) replaced.push([field, isFlag ? "" : ` ${nameOf(field, chosen[name])}`, isFlag ? value : nameOf(field, value)]);
      found = found.filter((need) => values(need).includes(value));
    }
    const device = [at("from").value, at("to").value].includes("device");
    label(at("source")).hidden = !device;
    label(at("threads")).hidden = device;
    const memory = MEMORIES[at("memory").value].find((each) => found.some((need) => need.memory === each));
    const told = replaced.filter(([field]) => field !== at(device ? "threads" : "source"));
    return [found.filter((need) => need.memory === memory), told];
  }

  const sizes = (wanted) =>
    [...new Set(rows.filter((row) => wanted.includes(row.need) && GOOD.includes(row.kind)).map((row) => row.nbytes))].sort((one, other) => one - other);

  const address = () => {
    const changed = Object.entries(chosen).filter(([name, value]) => value !== USUAL[name] || known.held.includes(name));
    return new URLSearchParams(changed);
  };

  /* The measured size that is nearest to one. */
  const nearest = (nbytes, all) => all.reduce((best, size) => (Math.abs(Math.log(size / nbytes)) < Math.abs(Math.log(best / nbytes)) ? size : best));

  function sizeNote(nbytes, near, all, isFlat) {
    if (isFlat) return `${sizeOf(nbytes)} was not measured; the time is about the same at all measured sizes. Shown: ${sizeOf(near[0])}.`;
    const isFar = nbytes > known.reach * all.at(-1) || nbytes * known.reach < all[0];
    const reach = isFar ? ", and no estimate reaches that far" : "";
    return `${sizeOf(nbytes)} was not measured${reach}. Shown: ${near.map((size) => sizeOf(size)).join(" and ")}.`;
  }

  function update(remember = true) {
    const [wanted, replaced] = needed();
    const nbytes = bytesOf(chosen.nbytes, itemsizeOf(at("dtype").value));
    const all = sizes(wanted);
    document.getElementById("sizes").replaceChildren(...all.map((size) => new Option(text(size))));
    const around = all.includes(nbytes) ? [nbytes] : [all.filter((size) => size < nbytes).at(-1), all.find((size) => size > nbytes)].filter(Boolean);
    const isFlat = around.length > 1 && wanted.every((need) => known.flat[needs.indexOf(need)]);
    const near = isFlat ? [nearest(nbytes, all)] : around;
    const parts = replaced.map(([field, from, to]) => fact("p", `${titleOf(field)}${from} was not measured for this${to === false ? "" : `. Shown: ${to === true ? titleOf(field) : to}`}.`));
    if (!near.length) parts.push(fact("p", "Write the size in bytes, such as 4096, 3MiB, 3MB or 1e6, or a shape such as 1080x1920x3."));
    else if (near[0] !== nbytes) parts.push(fact("p", sizeNote(nbytes, near, all, isFlat)));
    for (const size of near) parts.push(...answer(rows.filter((row) => wanted.includes(row.need) && row.nbytes === size)));
    root.querySelector(".chosen").replaceChildren(...parts);
    const { command } = rows.find((row) => wanted.includes(row.need));
    const option = at("read-only").checked ? " --read-only" : "";
    root.querySelector(".command").replaceChildren(near.length ? command.replace("NBYTES", text(nbytes)) + option : "");
    if (remember) history.replaceState(null, "", `#${address()}`);
  }

  const line = (row) => [fact("code", row.route), `, ${row.cost}`];
  const notesOf = (row) => row.notes.split("\n").filter(Boolean);

  function answer(here) {
    const good = here.filter((row) => GOOD.includes(row.kind));
    const list = fact("ol", ...good.slice(0, known.shown).map((row) => fact("li", ...line(row))));
    const notes = notesOf(good[0]).map((note) => fact("li", fact("code", good[0].route), `: ${note}`));
    const isReadOnly = at("read-only").checked;
    if (isReadOnly && good[0].need.memory === "alias") notes.unshift(fact("li", `${known.caution}.`));
    for (const [kind, said] of [["condition", "faster on a condition"], ["unsafe", "faster, but not recommended"]])
      notes.push(...here.filter((row) => row.kind === kind).map((row) => fact("li", `${said}: `, ...line(row), ...notesOf(row).slice(0, 1).map((note) => `: ${note}`))));
    const best = here.find((row) => row.kind === "best");
    const code = fact("pre", fact("code", best.code));
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
    return [fact("h3", best.title, isReadOnly ? known.read_only : ""), list, ...(rest > 0 ? [fact("p", `and ${rest} more`)] : []), block, fact("ul", ...notes)];
  }

  /* The choice of the address, where it holds one. */
  function linked() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    for (const [name, usual] of Object.entries("from" in given ? USUAL : {})) {
      const value = given[name] ?? usual;
      chosen[name] = typeof usual === "boolean" ? String(value) === "true" : value;
    }
    if (!("from" in given)) chosen.nbytes = text(nearest(2 ** 20, sizes(needed()[0])));
    at("nbytes").value = chosen.nbytes;
    update(false);
    if ("from" in given && !given.at) root.scrollIntoView();
  }

  /* A link to a section keeps the case in the address. */
  document.addEventListener("click", (event) => {
    const id = event.target.closest('a[href^="#"]')?.hash.slice(1);
    if (!id || !location.hash.includes("from=")) return;
    event.preventDefault();
    location.hash = `${address()}&at=${id}`;
  });

  const fill = (name, values) => at(name).append(...[...new Set(values)].map((value) => new Option(value, value)));
  const crosses = needs.some((need) => waysOf(need).flat().includes("device"));
  for (const name of ["from", "to"]) {
    fill(name, ["numpy", "torch"]);
    at(name).append(new Option(crosses ? "device" : `device: ${UNMEASURED}`, "device"));
  }
  at("threads").append(...known.threads.map(([value, text]) => new Option(text, value)));
  fill("dtype", needs.map((need) => need.dtype));
  fill("to-dtype", ["same", ...needs.map((need) => need.goal).filter(Boolean)]);
  const counts = [...new Set(needs.map((need) => need.arrays))].sort((one, other) => one - other);
  at("batch").append(...counts.map((count) => new Option(count ? `${count} into one` : "one", count)));
  fill("layout", ["contiguous", ...needs.map((need) => need.layout)]);
  form.onsubmit = (event) => event.preventDefault();
  form.oninput = (event) => {
    chosen[event.target.name] = read(event.target);
    update();
  };
  window.addEventListener("hashchange", linked);
  root.hidden = false;
  linked();
})();
