// Jobs, fleet, cost, events.

import { amount, clamped, clock, counted, el, get, isNew, line, loss, phase, redraw, say, since, span, step, table, times, usd } from "./parts.js";
import { more } from "./page.js";

const JOBS = [
  ["Job", (job) => el("a", { href: `#/job/${encodeURIComponent(job.id)}` }, job.id)],
  ["Phase", phase],
  ["For", (job) => since(job.phase_since), true],
  ["TPU", (job) => job.resources[0]?.accelerator ?? job.spec?.tpu?.accelerator ?? ""],
  ["Zone", (job) => job.resources[0]?.zone ?? ""],
  ["Attempt", (job) => job.attempt, true],
  ["Preempted", (job) => job.counters.preemptions, true],
  ["Step", step, true],
  ["Loss", (job) => loss(job.progress.loss ?? ""), true],
  ["Cost", (job) => usd(job.cost_usd), true],
  ["Owner", (job) => job.owner],
  ["Tags", (job) => (job.tags.length ? el("span", { class: "tags", title: job.tags.join(", ") }, tags(job.tags)) : "")],
  ["Message", (job) => clamped(job.message)],
];
/** The first ones; the others are in the title, and with the job. */
function tags(all) {
  const shown = all.slice(0, TAGS_SHOWN).map((tag, at, { length }) => el("span", {}, at + 1 < length ? `${tag}, ` : tag));
  return all.length > TAGS_SHOWN ? [...shown, el("span", {}, ` +${all.length - TAGS_SHOWN}`)] : shown;
}
const TAGS_SHOWN = 3;
/** Rows that are drawn at once; more come as one scrolls. */
const ROWS = 200;
/** Jobs that are loaded at once while a filter looks for some among all. */
const LOOKED = 500;
/** Ages are drawn anew so often, in milliseconds; nothing is asked for. */
const AGES_MS = 30000;
/** How long typing must rest before older jobs are loaded for it, in milliseconds. */
const REST_MS = 300;

export function jobsView(main, known) {
  let rows = ROWS;
  const find = el("input", { type: "search", id: "find", size: 36, placeholder: "id, owner, tag, phase, message", "aria-label": "Filter jobs", oninput: () => { rows = ROWS; draw(); later(); } });
  const count = el("span", { role: "status" });
  const button = el("button", { type: "button", onclick: () => load() }, "Load older jobs");
  const shown = table("Jobs, newest first", JOBS, [], { id: "jobs" });
  const body = shown.querySelector("tbody");
  const end = el("div", {});
  main.append(el("h2", {}, "Jobs"), el("div", { class: "bar" }, find, count), shown, el("div", { class: "bar" }, button), end);
  const watcher = new IntersectionObserver((entries) => {
    if (!entries[0].isIntersecting || !known.jobs.size) return;
    if (rows < known.jobs.size) { rows += ROWS; draw(); } else if (!known.isWhole) load();
  });
  watcher.observe(end);

  let isClosed = false;
  let rest = null;
  const load = (size) => more(size).catch((error) => say(error.message));
  // A filter is for all jobs, not for those that happen to be here: older ones come until enough match.
  function later() {
    clearTimeout(rest);
    if (!isClosed && find.value.trim() && !known.isWhole && matching < ROWS) rest = setTimeout(() => load(LOOKED), REST_MS);
  }

  let matching = 0;
  const drawn = new Map();
  function draw() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isWanted = (job) => {
      const text = `${job.id} ${job.owner} ${job.tags.join(" ")} ${job.phase} ${job.outcome ?? ""} ${job.message}`.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const jobs = [...known.jobs.values()].filter(isWanted).sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
    const nodes = jobs.slice(0, rows).map((job) => {
      const before = drawn.get(job.id);
      // The same job at the same moment looks the same; how long it has been so, and how old its step is, goes on.
      const moment = Math.floor(Date.now() / AGES_MS);
      if (before && before.job === job && before.moment === moment) return before.node;
      const node = line(JOBS, job);
      node.dataset.job = job.id;
      drawn.set(job.id, { job, moment, node });
      return node;
    });
    redraw(body, ...nodes);
    matching = jobs.length;
    // Before the first answer nothing is known, which is not none.
    const isLoading = !known.jobs.size && !known.isWhole;
    count.textContent = isLoading ? "…loading" : `${jobs.length} of ${counted(known.jobs.size, "job")}${known.isWhole ? "" : " so far"}`;
    button.hidden = known.isWhole || isLoading;
  }
  let due = null;
  // A storm of changes draws once a frame.
  const changed = () => { due ??= requestAnimationFrame(() => { due = null; draw(); later(); }); };
  draw();
  const ages = setInterval(() => { if (!document.hidden) changed(); }, AGES_MS);
  return { changed, close: () => { isClosed = true; clearTimeout(rest); clearInterval(ages); watcher.disconnect(); } };
}

/** The word that the account has for it. */
const accounted = (idle) => (idle.cause === "starting" ? "waiting" : "idle");
/** For how long nobody's code has run on a TPU, and why. */
const unused = (idle) => [`${span(idle.secs)} ${accounted(idle)}`, idle.cause === "starting" ? [] : idle.cause.replaceAll("_", " ")].flat().join(", ");
const FLEET = [
  ["Name", (entry) => entry.name],
  ["Job", (entry) => entry.owner === "ORPHAN" || entry.owner === "FOREIGN"
    ? el("span", { class: entry.owner.toLowerCase() }, entry.owner)
    : entry.owner === null
      ? "a job"
      : el("a", { href: `#/job/${encodeURIComponent(entry.owner)}` }, `${entry.owner} g${entry.generation}`)],
  ["Owner", (entry) => entry.job_owner ?? "-"],
  ["State", (entry) => entry.state],
  ["Unused", (entry) => (entry.idle ? el("span", { class: "idle" }, unused(entry.idle)) : "-")],
  ["TPU", (entry) => entry.accelerator],
  ["Zone", (entry) => entry.zone],
  ["Kind", (entry) => (entry.kind === "queued_resource" ? "queued" : entry.kind)],
  ["Bought", (entry) => entry.capacity.replaceAll("_", " ")],
  ["Age", (entry) => (entry.age_secs === null ? "-" : span(entry.age_secs)), true],
  ["$/h", (entry) => (entry.usd_per_hour === null ? "-" : entry.usd_per_hour.toFixed(2)), true],
];

export function fleetView(main) {
  const place = el("div", {});
  const button = el("button", { type: "button", onclick: draw }, "Look again");
  main.append(el("h2", {}, "Fleet"), el("div", { class: "bar" }, button), place);
  async function draw() {
    try {
      const fleet = await get("/v1/fleet");
      const cost = (entries) => usd(entries.reduce((sum, entry) => sum + (entry.usd_per_hour ?? 0), 0));
      const of = (word) => fleet.resources.filter((entry) => entry.idle && entry.idle.cause !== "handed_back" && accounted(entry.idle) === word);
      const sums = ["waiting", "idle"].map((word) => `${of(word).length} ${word}, ${cost(of(word))} an hour`);
      const parts = [el("p", {}, fleet.resources.length
        ? `${fleet.resources.length} in all, ${cost(fleet.resources)} an hour; ${sums.join("; ")}`
        : "No TPU and no queued resource.")];
      if (fleet.listed_at) parts.push(el("p", {}, `As the tick saw it ${since(fleet.listed_at)} ago.`));
      if (fleet.omitted) parts.push(el("p", {}, `${fleet.omitted} more are not shown.`));
      if (fleet.unreachable.length) parts.push(el("p", { class: "error" }, `Nothing is known of ${fleet.unreachable.join(", ")}: no answer.`));
      if (fleet.resources.length) parts.push(table("Every TPU in every zone", FLEET, fleet.resources, { id: "fleet" }));
      redraw(place, ...parts);
    } catch (error) { place.replaceChildren(el("p", { class: "error" }, error.message)); }
  }
  draw();
  return { close() {} };
}

/** What the server added up: the same as `rekindle account`. */
export function costView(main) {
  const place = el("div", {});
  const ways = [["week,owner", "week and owner"], ["owner", "owner"], ["tag", "tag"], ["job", "job"], ["week", "week"]];
  const by = el("select", { id: "by", "aria-label": "Broken down by", onchange: draw }, ways.map(([value, words]) => el("option", { value }, words)));
  const file = el("a", { download: "rekindle-account.csv" }, "as CSV");
  main.append(el("h2", {}, "Chip hours and money"), el("div", { class: "bar" }, "by", by, file), place);
  const hours = (part) => [part, (row) => amount(row.chip_hours[part]), true];
  const names = {
    week: ["Week of", (row) => row.week], owner: ["Owner", (row) => row.owner || "-"], tag: ["Tag", (row) => row.tag || "-"],
    job: ["Job", (row) => el("a", { href: `#/job/${encodeURIComponent(row.job)}` }, row.job)],
  };
  const wasted = (row) => (row.chip_hours.total > 0 ? `${Math.round((100 * (row.chip_hours.total - row.chip_hours.useful)) / row.chip_hours.total)}%` : "-");
  async function draw() {
    const path = `/v1/account?by=${by.value}`;
    file.setAttribute("href", `${path}&format=csv`);
    try {
      const account = await get(path);
      const columns = [
        ...account.by.map((dimension) => names[dimension]), ["Jobs", (row) => row.jobs, true],
        ["Chip hours", (row) => amount(row.chip_hours.total), true], ...["useful", "repeated", "waiting", "idle", "orphan"].map(hours),
        ["Cost", (row) => usd(row.usd.total), true], ["Wasted", wasted, true],
      ];
      const total = account.total;
      place.replaceChildren(
        el("p", {}, `${usd(total.usd.total)} for ${amount(total.chip_hours.total)} chip hours of ${counted(total.jobs, "job")} since ${account.since}, ${wasted(total)} of them wasted.`),
        table("Chip hours and money", columns, account.rows, { id: "cost" }));
    } catch (error) { place.replaceChildren(el("p", { class: "error" }, error.message)); }
  }
  draw();
  return { close() {} };
}

const DAY_MS = 86400000;
const HAPPENED = [
  ["Job", (job) => el("a", { href: `#/job/${encodeURIComponent(job.id)}` }, job.id)], ["Now", phase], ["Owner", (job) => job.owner],
  ["What happened", happened], ["Message", (job) => clamped(job.message)],
];
/** Why attempts ended, in the words of `rekindle since`. */
const ENDED = {
  maintenance: "taken for maintenance", lost: "TPU lost", infra_grpc: "connection between workers lost", tpu_runtime: "TPU runtime failed",
  oom_hbm: "out of TPU memory", oom_host: "out of memory", disk_full: "disk full", storage_network: "storage not reached", auth: "access denied",
  environment: "module or command missing", user_error: "program failed", timeout: "out of time", unknown: "ended for an unknown cause",
};
/** In the words of `rekindle since`. */
function happened(job) {
  // The first start of a new job is no news of its own; one command of a person may take several orders.
  const starts = job.attempts ? (job.attempts === 1 && job.is_new ? "started" : counted(job.attempts, "start")) : null;
  const people = [];
  for (const told of job.by_people) {
    if (people.at(-1)?.told === told) people.at(-1).count += 1; else people.push({ told, count: 1 });
  }
  const parts = [
    job.is_new ? "submitted" : null, starts, ...Object.entries(job.ends).map(([kind, count]) => times(ENDED[kind] ?? kind, count)),
    ...people.map(({ told, count }) => times(told, count)), job.steps ? counted(job.steps, "step") : null,
  ].filter(Boolean).join(", ");
  const end = job.has_ended ? phase(job).textContent : null;
  return [parts, end].filter(Boolean).join("; ") || (job.phase === "running" ? "runs on" : "-");
}

/** Dead letters that are shown, and pages that are looked through for as many: a page may hold none that one may see. */
const [LETTERS_SHOWN, LETTER_PAGES] = [100, 10];
const LETTERS = [
  ["Time", (letter) => clock(letter.at)],
  ["Job", (letter) => (letter.job ? el("a", { href: `#/job/${encodeURIComponent(letter.job)}` }, letter.job) : "-")],
  ["From", (letter) => letter.function], ["Not told", (letter) => letter.phase ?? "-"],
  ["Message", ({ reason, tried_until: until, mended_by: job }) => {
    const lines = reason.split("\n");
    const after = until ? `; tried again until ${clock(until)}` : job ? `; mended since: it is job ${job}` : "";
    const head = `${lines.length > 1 ? `${lines.length} webhooks` : reason}${after}`;
    return lines.length > 1 ? el("div", {}, head, el("ul", { class: "facts" }, lines.map((line) => el("li", {}, line)))) : head;
  }],
];

/** The newest dead letters that one may see, and whether there may be more. */
async function newestLetters() {
  const found = [];
  let token = null;
  for (let page = 0; page < LETTER_PAGES; page += 1) {
    const after = token ? `&page_token=${encodeURIComponent(token)}` : "";
    const { letters, next_page_token: next } = await get(`/v1/dead-letters?page_size=${LETTERS_SHOWN}${after}`);
    found.push(...letters);
    token = next;
    if (!token || found.length >= LETTERS_SHOWN) break;
  }
  return { letters: found.slice(0, LETTERS_SHOWN), isCut: Boolean(token) || found.length > LETTERS_SHOWN };
}

/** What webhooks were not told, and messages that could not be used. */
async function lettersInto(place) {
  try {
    const { letters, isCut } = await newestLetters();
    const none = isCut ? "None among the newest." : "Nothing: every message could be used, and no webhook waits or was given up (one that fails is shown after half a minute).";
    place.replaceChildren(letters.length
      ? table("Webhooks that were not told, messages that could not be used", LETTERS, letters, { id: "letters" })
      : el("p", {}, none));
    if (letters.some((letter) => !letter.tried_until)) place.append(el("p", {}, "What is given up is not sent again: mend a message and publish it anew; of a webhook, “Not told” is the phase it was not told of, and the history on its job's page tells what happened then."));
    if (isCut) place.append(el("p", {}, "There may be more; rekindle dead-letters looks for them."));
  } catch (error) {
    place.replaceChildren(el("p", { class: "error" }, error.message));
  }
}

/** The last day as `rekindle since 24h` tells it, and below it what comes. */
export function eventsView(main, known) {
  const [place, day, dead] = [el("div", {}), el("div", {}), el("div", {})];
  main.append(el("h2", {}, "Events since this page was opened"), place, el("h2", {}, "The last 24 hours"), day,
    el("h2", {}, "Not told, not used"), dead);
  lettersInto(dead);
  const columns = [
    ["Time", (event) => clock(event.at)],
    ["Job", (event) => el("a", { href: `#/job/${encodeURIComponent(event.id)}` }, event.id)],
    ["Phase", phase], ["Message", (event) => clamped(event.message)],
  ];
  const draw = () => {
    const events = known.events.filter(isNew);
    redraw(place, events.length ? table("Events", columns, events, { id: "events" }) : el("p", {}, "None yet."));
  };
  draw();
  get(`/v1/digest?since=${new Date(Date.now() - DAY_MS).toISOString()}`).then((digest) => {
    const jobs = digest.jobs.toReversed();
    day.replaceChildren(jobs.length ? table("What happened", HAPPENED, jobs, { id: "digest" }) : el("p", {}, "Nothing happened."));
    if (digest.is_cut) day.append(el("p", {}, `The first ${counted(jobs.length, "job")}; rekindle since tells more.`));
  }).catch((error) => day.replaceChildren(el("p", { class: "error" }, error.message)));
  return { changed: draw, close() {} };
}
