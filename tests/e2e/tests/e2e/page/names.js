// What somebody who hears the page, or uses it by keyboard alone, would miss. Answers the faults in words.
const faults = [];
const text = (node) => (node?.textContent ?? "").trim();
const named = (node) => node.getAttribute("aria-label") || text(document.getElementById(node.getAttribute("aria-labelledby"))) || text(node.labels?.[0]);
const told = (node) => node.outerHTML.slice(0, 120);
// A question that is not asked has no words yet.
const all = (what) => [...document.querySelectorAll(what)].filter((node) => !node.closest("dialog:not([open])"));
for (const node of all("a, button")) if (!named(node) && !text(node)) faults.push(`no name: ${told(node)}`);
for (const node of all("input, select, textarea, dialog, nav, pre[tabindex]")) if (!named(node)) faults.push(`no name: ${told(node)}`);
for (const node of document.querySelectorAll("main svg")) if (node.getAttribute("role") !== "img" || !named(node)) faults.push(`a picture without words: ${told(node)}`);
for (const node of document.querySelectorAll("main table")) if (!text(node.caption)) faults.push(`a table without a caption: ${told(node)}`);
for (const node of document.querySelectorAll("th")) if (!["col", "row"].includes(node.scope) || !text(node)) faults.push(`a head of nothing: ${told(node)}`);
for (const node of document.querySelectorAll("[tabindex]")) if (node.tabIndex > 0) faults.push(`out of order: ${told(node)}`);
for (const node of document.querySelectorAll("[onclick], main tr[tabindex], main div[tabindex]")) faults.push(`a control that is none: ${told(node)}`);
const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) faults.push(`twice: #${id}`);
const landmarks = { header: 1, nav: 1, main: 1, h1: 1 };
for (const [name, count] of Object.entries(landmarks)) if (document.querySelectorAll(`body ${name}`).length !== count) faults.push(`${name} is not there ${count} times`);
let level = 1;
for (const node of document.querySelectorAll("main h2, main h3, main h4")) {
  const next = Number(node.localName[1]);
  if (next > level + 1) faults.push(`h${level} is followed by h${next}: ${text(node)}`);
  level = next;
}
if (level === 1) faults.push("no heading");
if (!document.documentElement.lang || !document.title) faults.push("no language or no title");
for (const id of ["live", "news"]) if (document.getElementById(id)?.getAttribute("role") !== "status") faults.push(`#${id} is not told`);
return faults;
