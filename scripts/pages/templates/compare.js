"use strict";
/* Shows the comparison that two menus choose, as Python judged and worded it (pages/pairs.py). The address holds the choice.
 * Without this file or JavaScript the section says what is missing. */
for (const { key, names, chosen, tables, texts } of [{{ page.pairs | map(attribute="as_json") | join(",\n") | safe }}]) {
  const section = document.getElementById(key);
  const menus = [...section.querySelectorAll("select")];
  const shown = section.querySelector(".chosen");
  const cells = (tag, places) => places.map((place) => `<${tag}>${texts[place]}</${tag}>`).join("");

  function show() {
    const sides = menus.map((menu) => menu.value);
    for (const menu of menus) for (const option of menu.options) option.disabled = sides.includes(option.value) && option.value !== menu.value;
    const { title, rows, notes } = tables[sides.join("\t")];
    const [head, ...body] = rows.map(([first, ...rest]) => [first, rest]);
    shown.querySelector("h3").innerHTML = texts[title];
    const scroll = shown.querySelector(".scroll");
    scroll.hidden = !body.length;
    scroll.querySelector("thead").innerHTML = `<tr>${cells("th", [head[0], ...head[1]])}</tr>`;
    scroll.querySelector("tbody").innerHTML = body.map(([first, rest]) => `<tr>${cells("th", [first])}${cells("td", rest)}</tr>`).join("");
    for (const row of scroll.querySelectorAll("tbody tr")) [...row.cells].forEach((cell, place) => (cell.dataset.of = scroll.querySelectorAll("thead th")[place].textContent));
    shown.querySelector("ul").innerHTML = cells("li", notes);
  }

  function read() {
    const query = new URLSearchParams(location.hash.slice(1));
    const isHere = query.get("at") === section.id;
    const given = menus.map((menu) => (isHere ? query.get(menu.name) : null));
    const sides = given.map((name, place) => name ?? [...chosen, ...names].find((each) => each !== given[1 - place]));
    menus.forEach((menu, place) => (menu.value = (tables[sides.join("\t")] ? sides : chosen)[place]));
    show();
    if (isHere) section.scrollIntoView();
  }

  for (const menu of menus) {
    menu.append(...names.map((name) => new Option(name)));
    menu.onchange = () => {
      const options = menus.map((each) => [each.name, each.value]);
      history.replaceState(null, "", `#${new URLSearchParams([["at", section.id], ...options])}`);
      show();
    };
  }
  for (const hidden of section.querySelectorAll("[hidden]")) hidden.hidden = false;
  section.querySelector(".missing").remove();
  addEventListener("hashchange", read);
  read();
}
