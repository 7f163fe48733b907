// Text whose contrast with what is behind it is below 4.5 (WCAG 2, AA), and how light the page is.
const rgb = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => {
  const part = (value) => { const v = value / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
    if (colour[3] > 0) throw new Error(`half transparent: ${at.outerHTML.slice(0, 80)}`);
  }
  return [255, 255, 255];
};
const ratio = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const faults = new Set();
let seen = 0;
const check = (colour, node, words) => {
  seen += 1;
  const got = ratio(rgb(colour), behind(node));
  if (got < 4.5) faults.add(`${got.toFixed(2)}: ${colour} on ${behind(node)} in ${node.localName}.${node.getAttribute("class")}: ${words.slice(0, 40)}`);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text = walker.nextNode(); text; text = walker.nextNode()) {
  const node = text.parentElement;
  const style = getComputedStyle(node);
  // What is not seen, and what cannot be pressed, need not be read.
  if (!text.data.trim() || !node.checkVisibility({ visibilityProperty: true }) || node.closest(":disabled, .skip, noscript, title")) continue;
  check(node.closest("svg") ? style.fill : style.color, node, text.data);
}
for (const input of document.querySelectorAll("input[placeholder]")) check(getComputedStyle(input, "::placeholder").color, input, input.placeholder);
return { faults: [...faults], seen, light: light(behind(document.body)), wide: document.documentElement.scrollWidth - document.documentElement.clientWidth };
