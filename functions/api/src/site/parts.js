// Small parts that all views share. Text from jobs only ever becomes text nodes, never markup.

/** An element with attributes, listeners (`onclick`) and children. */
export function el(name, attributes = {}, ...children) {
  const node = name === "svg" || SVG.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : document.createTextNode(plain(child))));
  return node;
}
/** Text in which nothing turns around what stands beside it, as on the command line. */
export const plain = (text) => String(text).replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
const SVG = new Set(["g", "rect", "line", "path", "text", "title", "polyline"]);

/** A call of the API. Throws an Error with the problem's own words. */
export async function call(path, options = {}) {
  const answer = await fetch(path, options);
  if (answer.status === 304) return null;
  const text = await answer.text();
  let body = null;
  try { body = text ? JSON.parse(text) : null; } catch { /* a proxy's page, perhaps */ }
  if (answer.ok) return body;
  const words = body?.detail ?? body?.title ?? text.slice(0, 200);
  throw new Error(`${answer.status}: ${words || answer.statusText}`);
}

/** When the server answered first, by its own clock, which its times are by; to the second. */
let firstAnswer = null;
/** Whether something happened since this page was opened: the stream tells also of the seconds before. What is newer than a state that the page had (`isNewer`) did, whatever its time. */
export const isNew = (event) => event.isNewer || firstAnswer === null || Date.parse(event.at) >= firstAnswer;
const known = new Map();
/** GET with the ETag of the last time: what has not changed costs a header. */
export async function get(path) {
  const before = known.get(path);
  const answer = await fetch(path, { headers: before ? { "If-None-Match": before.tag } : {}, cache: "no-store" });
  firstAnswer ??= Date.parse(answer.headers.get("Date")) || Date.now();
  if (answer.status === 304 && before) return before.body;
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Error(`${answer.status}: ${problem.detail ?? answer.statusText}`);
  }
  const body = await answer.json();
  const tag = answer.headers.get("ETag");
  if (known.size > 200) known.clear();
  if (tag) known.set(path, { tag, body });
  return body;
}

let asked = 0;

/** Asks before something is destroyed. */
export function ask(title, text, yes) {
  const mine = (asked += 1);
  const dialog = document.getElementById("ask");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = plain(text);
  document.getElementById("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answered) => {
    // The event comes late: that of an earlier question, when this one is open already, is no answer to it.
    const closed = () => {
      if (mine === asked && dialog.open) return;
      dialog.removeEventListener("close", closed);
      answered(mine === asked && dialog.returnValue === "yes");
    };
    dialog.addEventListener("close", closed);
  });
}

/** New content for a place. Who was on a link or a button of it by keyboard is on the same one of the new content. */
export function redraw(place, ...nodes) {
  const at = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...nodes);
  if (!at) return;
  const name = ["id", "href", "data-action"].find((attribute) => at.hasAttribute(attribute));
  const same = at.isConnected ? at : name && place.querySelector(`${at.localName}[${name}="${CSS.escape(at.getAttribute(name))}"]`);
  (same || document.getElementById("main")).focus({ preventScroll: true });
}

/** A sentence of a list: a traceback takes no more than a few lines there, and the job's own view has all of it. */
export const clamped = (text) => el("div", { class: "clamp" }, sentence(text));

/** How the page itself is: seen at the top. */
export function say(text) { document.getElementById("live").textContent = plain(text); }

/** What happened, for those who hear the page. */
export function tell(text) { document.getElementById("news").textContent = text; }

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172800) return `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  const hours = Math.floor((s % 86400) / 3600);
  return `${Math.floor(s / 86400)}d${hours ? `${hours}h` : ""}`;
}
export const since = (time) => span((Date.now() - Date.parse(time)) / 1000);
/** Hours: with two digits, and below one hour with two that say something. */
export const amount = (hours) => hours.toFixed(hours > 0 && hours < 1 ? Math.min(6, Math.max(2, Math.ceil(-Math.log10(hours)) + 1)) : 2);
export const usd = (amount) => (amount > 0 && amount < 0.01 ? `$${amount.toFixed(4)}` : `$${(amount ?? 0).toFixed(2)}`);
/** Why a letter is one, in one line: of several webhooks how many, and the first of them. */
export function brief(reason) {
  const lines = reason.split("\n");
  const more = lines.length > 3 ? `; and ${lines.length - 3} more` : "";
  return lines.length > 1 ? `${lines.length} webhooks: ${lines.slice(0, 3).join("; ")}${more}` : reason;
}

/** `1 job`, `2 jobs`. */
export const counted = (count, word) => (count === 1 ? `1 ${word}` : `${count} ${word}s`);
/** A loss as a program wrote it; with five digits where it has more, as on the command line. */
export function loss(written) {
  const [text, number] = [String(written), Number(written)];
  if (text.length <= 8 || !Number.isFinite(number)) return text;
  const before = number === 0 ? 0 : Math.floor(Math.log10(Math.abs(number)));
  return before >= -3 && before < 5 ? number.toFixed(4 - before) : number.toExponential(3).replace("e+", "e");
}
/** Moments in a sentence of the server, which are those of UTC. */
const MOMENT = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z(?!\w)/g;
/** A sentence, its `commands` set as such and its moments as the other times of the page. */
export const sentence = (text) => String(text ?? "").split(/`([^`\n]+)`/)
  .map((part, at) => (at % 2 ? el("code", {}, part) : part.replace(MOMENT, clock)));
/** `restart`, `restart twice`, `restart 3 times`. */
export const times = (word, count) => (count === 1 ? word : count === 2 ? `${word} twice` : `${word} ${count} times`);
export const clock = (time) => new Date(time).toLocaleString();

export function phase(job) {
  // A workspace ends by being deleted.
  const said = (word) => (word === "cancelled" && (job.spec?.workspace || job.is_workspace) ? "deleted" : word);
  const word = job.outcome && job.phase === "stopping" ? `stopping (${said(job.outcome)})` : said(job.phase);
  return el("span", { class: `phase ${job.phase}` }, word);
}

/** From this age on a step of a job that runs says how old it is: a page that is only told of changes knows no newer one. */
const AGED_MS = 120000;
/** The newest step that is known. */
export function step(job) {
  const { step: newest, step_at: at } = job.progress;
  if (newest === null || newest === undefined) return "";
  const isOld = job.phase === "running" && at && Date.now() - Date.parse(at) > AGED_MS;
  return isOld ? [String(newest), el("span", { class: "aged" }, ` ${since(at)} ago`)] : String(newest);
}

/** A table: columns of [title, cell function, is number]. */
export function table(caption, columns, rows, attributes = {}) {
  return el("div", { class: "scroll" }, el("table", attributes,
    el("caption", { class: "skip" }, caption),
    el("thead", {}, el("tr", {}, columns.map(([title, , number]) => el("th", { scope: "col", class: number ? "num" : null }, title)))),
    el("tbody", {}, rows.map((row) => line(columns, row)))));
}

/** Columns of sentences: they are broken into lines. */
const WIDE = new Set(["Message", "What happened"]);

export function line(columns, row) {
  return el("tr", {}, columns.map(([title, cell, number]) =>
    el("td", { class: number ? "num" : WIDE.has(title) ? "wide" : null, "data-title": title }, cell(row))));
}
