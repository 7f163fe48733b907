// Routes, the jobs that are known, and the stream of changes.

import { el, get, isNew, say, tell } from "./parts.js";
import { jobsView, fleetView, costView, eventsView } from "./views.js";
import { jobView } from "./job.js";

/** What all views share. */
export const known = { jobs: new Map(), events: [], next: null, isWhole: false };
const EVENTS_MAX = 500;

let view = null;
let stream = null;

function route() {
  const path = location.hash.replace(/^#(main$)?/, "") || "/";
  view?.close?.();
  const main = document.getElementById("main");
  main.replaceChildren();
  const [, name, id] = path.split("/");
  const views = { "": jobsView, fleet: fleetView, cost: costView, events: eventsView };
  const job = name === "job" ? decoded(id) : null;
  const isView = Object.hasOwn(views, name ?? "");
  view = job ? jobView(main, job) : isView ? views[name ?? ""](main, known) : lost(main);
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === `#/${name === "job" ? "" : name ?? ""}`;
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
}

/** Null where an address is cut or mistyped. */
function decoded(id) {
  try { return decodeURIComponent(id ?? "") || null; } catch { return null; }
}

/** For an address that was mistyped, or is of another version. */
function lost(main) {
  main.append(el("h2", {}, "There is no such view"), el("p", {}, `${location.hash} is none of this page. `, el("a", { href: "#/" }, "Go to the jobs")));
  return {};
}

let coming = null;
/** The next page of jobs; the newest are first. Whoever asks while one is on its way gets that one. */
export function more(size = 100) {
  coming ??= nextPage(size).finally(() => { coming = null; });
  return coming;
}

async function nextPage(size) {
  const query = new URLSearchParams({ view: "list", page_size: String(size) });
  if (known.next) query.set("page_token", known.next);
  const list = await get(`/v1/jobs?${query}`);
  for (const job of list.jobs) merge(job, false);
  known.next = list.next_page_token;
  known.isWhole = !known.next;
  view?.changed?.();
}

function merge(job, isNews) {
  const before = known.jobs.get(job.id);
  if (before && before.revision > job.revision) return;
  // A change is told with the step of the last pass; what was read of the workers since is newer.
  const [old, now] = [before?.progress, job.progress];
  if (old && before.attempt === job.attempt && Date.parse(old.step_at) > (Date.parse(now.step_at) || 0)) job = { ...job, progress: old };
  known.jobs.set(job.id, job);
  if (!isNews || (before?.phase === job.phase && before?.message === job.message)) return;
  // A change has the time at which the pass began that made it, which may have ended since. A server of an earlier version tells none.
  const isNewer = Boolean(before) || !job.changed_at;
  const event = { at: job.changed_at ?? new Date().toISOString(), isNewer, id: job.id, phase: job.phase, spec: job.spec, message: job.message };
  known.events.unshift(event);
  known.events.sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
  known.events.length = Math.min(known.events.length, EVENTS_MAX);
  if (before?.phase !== job.phase && isNew(event)) announce(job);
}

const NEWS_MS = 1000;
const NEWS_MAX = 3;
const news = new Map();
/** Changes of phase, together when they come together: nobody listens to a storm. */
function announce(job) {
  if (!news.size) setTimeout(() => {
    tell(news.size > NEWS_MAX ? `${news.size} jobs changed` : [...news].map(([id, phase]) => `${id} is ${phase}`).join(", "));
    news.clear();
  }, NEWS_MS);
  news.set(job.id, job.phase);
}

// Longer than a server says that a stream should stay away.
const DOUBT_MS = 20000;
let lastId = null;
function watch() {
  stream?.close();
  // A stream of its own when this one ends in silence: EventSource comes back by itself, with the last id.
  const since = lastId ? `&since=${new Date(Number(lastId) / 1000).toISOString()}` : "";
  stream = new EventSource(`/v1/watch?brief=true${since}`);
  let doubt;
  stream.onopen = () => { clearTimeout(doubt); say("live"); };
  // Streams end when there is nothing to tell; only one that does not come back is a trouble.
  stream.onerror = () => { clearTimeout(doubt); doubt = setTimeout(() => say("connecting…"), DOUBT_MS); };
  stream.addEventListener("job", (event) => {
    lastId = event.lastEventId;
    const job = JSON.parse(event.data);
    merge(job, true);
    view?.changed?.(job);
  });
}

// Nobody looks at a hidden tab: it costs nothing until it is shown again.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; view?.sleep?.(); say("asleep"); } else { watch(); view?.wake?.(); }
});
// The link that skips to the content leads to no other view.
addEventListener("hashchange", () => { if (location.hash !== "#main") route(); document.getElementById("main").focus(); });

if (document.hidden) say("asleep"); else watch();
route();
more().catch((error) => say(error.message));
