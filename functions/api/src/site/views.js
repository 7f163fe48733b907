// Jobs, fleet, cost, events.

import { clock, el, get, line, phase, say, since, table, usd } from "./parts.js";
import { more } from "./page.js";

const JOBS = [
  ["Job", (job) => el("a", { href: `#/job/${encodeURIComponent(job.id)}` }, job.id)],
  ["Phase", phase],
  ["For", (job) => since(job.phase_since), true],
  ["TPU", (job) => job.resources[0]?.accelerator ?? job.spec?.tpu?.accelerator ?? ""],
  ["Zone", (job) => job.resources[0]?.zone ?? ""],
  ["Attempt", (job) => job.attempt, true],
  ["Preempted", (job) => job.counters.preemptions, true],
  ["Step", (job) => job.progress.step ?? "", true],
  ["Cost", (job) => usd(job.cost_usd), true],
  ["Owner", (job) => job.owner],
  ["Message", (job) => job.message],
];
/** Rows that are drawn at once; more come as one scrolls. */
const ROWS = 200;

export function jobsView(main, known) {
  let rows = ROWS;
  const find = el("input", { type: "search", id: "find", placeholder: "id, owner, tag, phase, message", "aria-label": "Filter jobs", oninput: () => { rows = ROWS; draw(); } });
  const count = el("span", { role: "status" });
  const button = el("button", { type: "button", onclick: () => more().catch((error) => say(error.message)) }, "Load older jobs");
  const shown = table("Jobs, newest first", JOBS, [], { id: "jobs" });
  const body = shown.querySelector("tbody");
  const end = el("div", {});
  main.append(el("h2", {}, "Jobs"), el("div", { class: "bar" }, find, count), shown, el("div", { class: "bar" }, button), end);
  const watcher = new IntersectionObserver((entries) => { if (entries[0].isIntersecting && rows < known.jobs.size) { rows += ROWS; draw(); } });
  watcher.observe(end);

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
      if (before && before.revision === job.revision) return before.node;
      const node = line(JOBS, job);
      node.dataset.job = job.id;
      drawn.set(job.id, { revision: job.revision, node });
      return node;
    });
    body.replaceChildren(...nodes);
    count.textContent = `${jobs.length} of ${known.jobs.size} jobs${known.isWhole ? "" : " so far"}`;
    button.hidden = known.isWhole;
  }
  let due = null;
  // A storm of changes draws once a frame.
  const changed = () => { due ??= requestAnimationFrame(() => { due = null; draw(); }); };
  draw();
  return { changed, close: () => watcher.disconnect() };
}

const FLEET = [
  ["Name", (entry) => entry.name],
  ["Owner", (entry) => entry.owner === "ORPHAN" || entry.owner === "FOREIGN"
    ? el("span", { class: entry.owner.toLowerCase() }, entry.owner)
    : entry.owner === null
      ? "a job"
      : el("a", { href: `#/job/${encodeURIComponent(entry.owner)}` }, `${entry.owner} g${entry.generation}`)],
  ["State", (entry) => entry.state],
  ["TPU", (entry) => entry.accelerator],
  ["Zone", (entry) => entry.zone],
  ["Kind", (entry) => (entry.kind === "queued_resource" ? "queued" : entry.kind)],
  ["Bought", (entry) => entry.bought ?? (entry.preemptible ? "spot" : "on demand")],
  ["Age", (entry) => (entry.created_at ? since(entry.created_at) : "-"), true],
  ["$/h", (entry) => (entry.usd_per_hour ?? null) === null ? "-" : entry.usd_per_hour.toFixed(2), true],
];

export function fleetView(main) {
  const place = el("div", {});
  const button = el("button", { type: "button", onclick: draw }, "Look again");
  main.append(el("h2", {}, "Fleet"), el("div", { class: "bar" }, button), place);
  async function draw() {
    try {
      const fleet = await get("/v1/fleet");
      const total = fleet.resources.reduce((sum, entry) => sum + (entry.usd_per_hour ?? 0), 0);
      const parts = [el("p", {}, fleet.resources.length ? `${fleet.resources.length} in all, ${usd(total)} an hour` : "No TPU and no queued resource.")];
      if (fleet.unreachable.length) parts.push(el("p", { class: "error" }, `Nothing is known of ${fleet.unreachable.join(", ")}: no answer.`));
      if (fleet.resources.length) parts.push(table("Every TPU in every zone", FLEET, fleet.resources, { id: "fleet" }));
      place.replaceChildren(...parts);
    } catch (error) { place.replaceChildren(el("p", { class: "error" }, error.message)); }
  }
  draw();
  return { close() {} };
}

/** Monday of the week, UTC. */
function week(time) {
  const date = new Date(time);
  date.setUTCDate(date.getUTCDate() - ((date.getUTCDay() + 6) % 7));
  return date.toISOString().slice(0, 10);
}

export function costView(main, known) {
  const place = el("div", {});
  main.append(el("h2", {}, "Cost by owner and week of submit"), place);
  const columns = [
    ["Week of", (row) => row.week], ["Owner", (row) => row.owner], ["Jobs", (row) => row.jobs, true],
    ["Chip hours", (row) => row.total.toFixed(1), true], ["useful", (row) => row.useful.toFixed(1), true],
    ["repeated", (row) => row.repeated.toFixed(1), true], ["waiting", (row) => row.waiting.toFixed(1), true],
    ["Cost", (row) => usd(row.cost), true],
  ];
  function draw() {
    const sums = new Map();
    for (const job of known.jobs.values()) {
      const key = `${week(job.created_at)} ${job.owner}`;
      const row = sums.get(key) ?? { week: week(job.created_at), owner: job.owner, jobs: 0, total: 0, useful: 0, repeated: 0, waiting: 0, cost: 0 };
      row.jobs += 1;
      for (const part of ["total", "useful", "repeated", "waiting"]) row[part] += job.chip_hours[part];
      row.cost += job.cost_usd;
      sums.set(key, row);
    }
    const rows = [...sums.values()].sort((a, b) => (a.week === b.week ? a.owner.localeCompare(b.owner) : a.week < b.week ? 1 : -1));
    const all = known.isWhole ? "all jobs" : `the newest ${known.jobs.size} jobs`;
    const load = el("button", { type: "button", onclick: () => more().catch((error) => say(error.message)) }, "Count older jobs too");
    place.replaceChildren(el("p", {}, `Of ${all}. `, known.isWhole ? null : load), table("Cost by owner and week", columns, rows, { id: "cost" }));
  }
  draw();
  return { changed: draw, close() {} };
}

export function eventsView(main, known) {
  const place = el("div", {});
  main.append(el("h2", {}, "Events since this page was opened"), place);
  const columns = [
    ["Time", (event) => clock(event.at)],
    ["Job", (event) => el("a", { href: `#/job/${encodeURIComponent(event.id)}` }, event.id)],
    ["Phase", phase], ["Message", (event) => event.message],
  ];
  const draw = () => place.replaceChildren(known.events.length ? table("Events", columns, known.events, { id: "events" }) : el("p", {}, "None yet."));
  draw();
  return { changed: draw, close() {} };
}
