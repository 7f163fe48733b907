// One job: what it is, why, its attempts to scale, its output, its history, and what a person may do.

import { amount, ask, brief, call, clock, counted, el, get, loss, phase, plain, redraw, say, sentence, since, span, step, table, usd } from "./parts.js";

/** A change of the job is told by the stream; what goes on without one (steps, cost, heartbeats) is asked for so often, as the server says. A page of an
    earlier version says nothing. */
const LOOK_MS = Number(document.querySelector("meta[name=look-ms]")?.content ?? 60000);
const LINES_MAX = 5000;
/** A long output is shown from so many bytes before its end on. */
const TAIL_BYTES = 65536;
const ENDED = ["succeeded", "failed", "cancelled"];

export function jobView(main, id) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const place = Object.fromEntries(["head", "why", "facts", "line", "plot", "ends", "history", "spec"].map((name) => [name, el("div", {})]));
  const logs = logView(path);
  const bar = actionBar(path, () => draw());
  // Nothing is known before the first answer, and never of a job that is not there.
  const [top, rest] = [el("div", { hidden: true }, bar.node), el("div", { hidden: true },
    el("h3", {}, "Attempts, to scale"), place.line, el("h3", {}, "Progress"), place.plot, el("h3", {}, "Facts"), place.facts,
    el("h3", {}, "Output"), logs.node, el("h3", {}, "History"), place.history, el("h3", {}, "Spec"), place.spec)];
  main.append(place.head, top, place.why, rest);
  let timer = null;
  let isClosed = false;
  let entries = [];
  let revision = null;
  // Nothing is asked for while nobody looks, whatever was under way when the tab was hidden.
  const isLooked = () => !isClosed && !document.hidden;
  function later() {
    clearTimeout(timer);
    if (isLooked()) timer = setTimeout(draw, LOOK_MS);
  }

  async function draw() {
    clearTimeout(timer);
    if (!isLooked()) return;
    try {
      const [job, explain, progress] = await Promise.all([get(path), get(`${path}/explain`), get(`${path}/progress`)]);
      // Each decision is a revision of its own: without another one the history is the same.
      if (job.revision !== revision) entries = await wholeHistory(path);
      const files = job.spec.outputs?.length && ENDED.includes(job.phase) ? await get(`${path}/outputs`) : null;
      if (!isLooked()) return;
      revision = job.revision;
      [top.hidden, rest.hidden] = [false, false];
      redraw(place.head, el("h2", {}, id, " ", phase(job)), el("p", {}, sentence(job.message)));
      bar.show(job);
      redraw(place.why, el("div", { class: "panel" }, el("p", {}, sentence(explain.paragraph)), el("ul", { class: "facts" }, explain.facts.map((fact) => el("li", {}, sentence(fact))))));
      redraw(place.facts, facts(job, path, files));
      redraw(place.line, timeline(entries, job, progress.attempts));
      redraw(place.plot, plot(progress.attempts), workers(progress.workers));
      redraw(place.history, history(entries, job));
      redraw(place.spec, el("pre", { class: "panel" }, JSON.stringify(job.spec, null, 2)));
      logs.follow(!ENDED.includes(job.phase), progress);
      if (!ENDED.includes(job.phase)) later();
    } catch (error) {
      if (!place.head.hasChildNodes()) place.head.append(el("h2", {}, id));
      redraw(place.why, el("p", { class: "error" }, error.message));
      later();
    }
  }
  draw();
  return {
    changed: (job) => { if (job?.id === id) draw(); },
    sleep: () => { clearTimeout(timer); logs.close(); },
    wake: draw,
    close: () => { isClosed = true; clearTimeout(timer); logs.close(); },
  };
}

async function wholeHistory(path) {
  const entries = [];
  for (let token = "0"; token;) {
    const page = await get(`${path}/history?page_size=500&page_token=${token}`);
    entries.push(...page.entries);
    token = page.next_page_token;
  }
  return entries;
}

const WORDS = {
  cancel: ["Cancel", (id) => `${id} is ended for good, and its TPU is given back.`],
  pause: ["Pause", (id, isWorkspace) => (isWorkspace
    ? `The TPU of ${id} is given back, and what sync and exec brought to it is gone, unless it is in the folder of up or in a bucket.`
    : `The program of ${id} is told to save, and its TPU is given back. The job is kept.`)],
  unpause: null,
  restart: ["Restart", (id) => `The program of ${id} is ended and started again from its last checkpoint.`],
  wake: null,
};

/** What a person may do. The buttons stay, so that the focus does: only whether they can be pressed changes. */
function actionBar(path, then) {
  let shown = null;
  const act = async (name) => {
    const job = shown;
    if (WORDS[name] && !(await ask(`${WORDS[name][0]} ${job.id}?`, WORDS[name][1](job.id, job.spec.workspace), `${WORDS[name][0]} it`))) return;
    try {
      // Only what was seen is acted on: another attempt by now answers 409.
      await call(`${path}/${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ if_attempt: job.attempt }) });
      say(`${name}: done`);
    } catch (error) { say(`${name}: ${error.message}`); }
    then();
  };
  const buttons = Object.keys(WORDS).map((name) => el("button", { type: "button", disabled: true, "data-action": name, onclick: () => act(name) }, name));
  return {
    node: el("div", { class: "bar", role: "group", "aria-label": "Actions" }, buttons),
    show(job) {
      shown = job;
      const may = {
        cancel: !ENDED.includes(job.phase),
        pause: !ENDED.includes(job.phase) && job.phase !== "stopping" && job.phase !== "paused",
        unpause: job.phase === "paused",
        restart: ["starting", "running", "recovering", "paused"].includes(job.phase),
        wake: Boolean(job.next_wake_at),
      };
      for (const button of buttons) {
        const isHere = document.activeElement === button;
        button.disabled = !may[button.dataset.action];
        if (isHere && button.disabled) document.getElementById("main").focus({ preventScroll: true });
      }
    },
  };
}

function facts(job, path, files) {
  const of = job.resources.map((r) => `${r.name}: ${r.accelerator} in ${r.zone}, ${r.capacity}, ${r.state}, ${usd(r.usd_per_hour)} an hour`);
  const hours = job.chip_hours;
  const rows = [
    ["Owner", job.owner], ["Tags", job.tags.join(", ") || "-"], ["Submitted", `${clock(job.created_at)} by ${job.submitted_by}`],
    ["Attempt, generation", `${job.attempt}, ${job.generation}`],
    ["Preempted", job.counters.preemptions], ["Failures", `${job.counters.infra_failures} of the infrastructure, ${job.counters.user_failures} of the program`],
    ["Step", step(job) || "-"], ["Loss", loss(job.progress.loss ?? "-")], ["Steps repeated", job.counters.steps_repeated],
    ["Chip hours", `${amount(hours.total)}: ${amount(hours.useful)} useful, ${amount(hours.repeated)} repeated, ${amount(hours.waiting)} waiting, ${amount(hours.idle ?? 0)} idle`],
    ["Cost", usd(job.cost_usd)], ["TPUs", of.join("; ") || "none"],
  ];
  if (job.spec.notes) rows.push(["Notes", job.spec.notes]);
  if (job.spec.outputs?.length) rows.push(["Outputs", outputs(job, path, files)]);
  if (job.untold) rows.push(["Webhook", untold(job.untold)]);
  if (job.last_end) rows.push(["Last end", `attempt ${job.last_end.attempt}: ${job.last_end.summary}`]);
  return el("dl", { class: "panel" }, rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** What a webhook was not told, or not yet. */
function untold({ phase: of, at, reason, tried_until: until }) {
  return until ? `${of ?? "an event"} is not told yet, tried again until ${clock(until)}: ${brief(reason)}` : `${of ?? "an event"} was not told at ${clock(at)}: ${brief(reason)}`;
}

const FILES_SHOWN = 20;
/** The files that a job left; they come when it ends. */
function outputs(job, path, files) {
  if (!files) return `${job.spec.outputs.join(", ")}, kept when it ends`;
  if (!files.outputs.length) return "no file was left";
  const links = files.outputs.slice(0, FILES_SHOWN).map((file) => {
    const address = file.object.split("/").map(encodeURIComponent).join("/");
    return el("li", {}, el("a", { href: `${path}/outputs/${address}`, download: true }, `${file.worker}/${file.path}`));
  });
  const more = files.outputs.length - links.length;
  const others = files.other_attempts ?? [];
  const earlier = others.length ? el("p", {}, `Of attempt ${files.attempt}; what others left: rekindle outputs ${job.id} --attempt ${others.at(-1)}`) : null;
  return [el("ul", { class: "facts", id: "outputs" }, links), earlier, more > 0 ? `and ${more} more: rekindle outputs ${job.id} --to FOLDER` : null];
}

/** So many generations are drawn, and so many decisions listed: the newest. */
const ROWS_MAX = 200;
const DECISIONS_MAX = 300;
/** Each generation on a line of its own, every stretch as long as it took. */
function timeline(all, job, attempts) {
  if (!all.length) return el("p", {}, "Nothing yet.");
  const last = Math.max(1, ...all.map((entry) => entry.generation));
  const first = Math.max(1, last - ROWS_MAX + 1);
  const entries = all.filter((entry) => Math.max(1, entry.generation) >= first);
  const begin = Date.parse(entries[0].at);
  // A tag or a note may come after the end.
  const over = entries.find((entry) => ENDED.includes(entry.to));
  const end = over ? Date.parse(over.at) : Date.now();
  const total = Math.max(end - begin, 1000);
  const x = (time) => 60 + (930 * (time - begin)) / total;
  const kinds = { provisioning: "make", starting: "make", recovering: "again", running: "runs" };
  const row = (generation) => 14 + (Math.max(first, generation) - first) * 24;
  const marks = [];
  entries.forEach((entry, index) => {
    const from = Date.parse(entry.at);
    const to = index + 1 < entries.length ? Date.parse(entries[index + 1].at) : end;
    if (ENDED.includes(entry.to) || to <= from) return;
    const words = `${entry.to}, attempt ${entry.attempt}, ${span((to - from) / 1000)}: ${entry.message}`;
    marks.push(el("rect", { x: x(from), y: row(entry.generation), width: Math.max(x(to) - x(from), 0.5), height: 16, class: kinds[entry.to] ?? "idle" }, el("title", {}, words)));
  });
  for (const attempt of attempts) {
    const run = entries.findIndex((entry) => entry.to === "running" && entry.attempt === attempt.attempt);
    if (run < 0) continue;
    const from = Date.parse(entries[run].at);
    const until = repeatedUntil(attempt, attempts, from);
    if (until === null) continue;
    const words = `attempt ${attempt.attempt} repeats steps for ${span((until - from) / 1000)}`;
    marks.push(el("rect", { x: x(from), y: row(entries[run].generation), width: Math.max(x(until) - x(from), 0.5), height: 16, class: "repeats" }, el("title", {}, words)));
  }
  for (const attempt of attempts) {
    const run = entries.findLastIndex((entry) => entry.to === "running" && entry.attempt === attempt.attempt);
    if (run < 0) continue;
    const started = entries.find((entry) => entry.to === "running" && entry.attempt === attempt.attempt);
    const until = run + 1 < entries.length ? Date.parse(entries[run + 1].at) : end;
    const from = lostFrom(attempt, attempts, Date.parse(started.at), until);
    if (from === null) continue;
    const begun = Math.max(from, Date.parse(entries[run].at));
    if (until <= begun) continue;
    const words = `what attempt ${attempt.attempt} did in its last ${span((until - begun) / 1000)} is lost: no checkpoint held it`;
    marks.push(el("rect", { x: x(begun), y: row(entries[run].generation), width: Math.max(x(until) - x(begun), 0.5), height: 16, class: "lost" }, el("title", {}, words)));
  }
  const names = Array.from({ length: last - first + 1 }, (_, index) => el("text", { x: 4, y: row(first + index) + 12 }, `TPU ${first + index}`));
  const height = row(last) + 44;
  const label = first > 1 ? `the newest ${ROWS_MAX} of ${last} TPUs, in ${span(total / 1000)}` : `${counted(last, "TPU")} and ${counted(job.attempt, "attempt")} in ${span(total / 1000)}`;
  return el("div", {}, first > 1 ? el("p", {}, `The newest ${ROWS_MAX} of ${last} TPUs.`) : null,
    el("div", { class: "scroll" }, el("svg", { viewBox: `0 0 1000 ${height}`, role: "img", "aria-label": label, id: "timeline" }, names, marks,
      el("line", { class: "axis", x1: 60, x2: 990, y1: height - 22, y2: height - 22 }),
      el("text", { x: 60, y: height - 6 }, "0"), el("text", { x: 990, y: height - 6, "text-anchor": "end" }, span(total / 1000)))),
    el("p", { class: "legend" }, el("span", { class: "runs" }, "runs"), el("span", { class: "make" }, "is made, starts"), el("span", { class: "again" }, "recovers"), el("span", { class: "idle" }, "waits, stops, is paused"), el("span", { class: "repeats" }, "repeats steps"), el("span", { class: "lost" }, "lost")));
}

/**
 * When an attempt, which runs since a moment, passed the highest step of those before it; null when it repeated nothing. Between two
 * points its steps are taken to be of one length, as where chip hours are counted.
 */
function repeatedUntil(attempt, attempts, start) {
  const highestOf = (other) => Math.max(other.points.at(-1)?.step ?? -1, other.step ?? -1);
  const highest = Math.max(-1, ...attempts.filter((other) => other.attempt < attempt.attempt).map(highestOf));
  const first = attempt.points[0]?.step;
  if (first === undefined || (attempt.from ?? first) >= highest) return null;
  let [known, until] = [attempt.from ?? first, start];
  for (const { step, at } of attempt.points) {
    if (step > highest) return until + ((Date.parse(at) - until) * Math.max(0, highest - known)) / Math.max(1, step - known);
    [known, until] = [step, Date.parse(at)];
  }
  return Math.max(start, until);
}

/**
 * Since when no checkpoint held what an attempt did, which ran between two moments: the next one went on from a step before its last. Null when
 * nothing was lost, also where the next was to begin from scratch: it took nothing up. Between two points its steps are taken to be of one length.
 */
function lostFrom(attempt, attempts, start, end) {
  // An attempt that died before its first step tells nothing of where it began: the one after it does.
  const next = attempts.find((other) => other.attempt > attempt.attempt && (other.from_scratch || other.points.length));
  if (!next || next.from_scratch) return null;
  const kept = next.from ?? next.points[0].step - 1;
  let [known, since] = [attempt.from ?? attempt.points[0]?.step, start];
  if (known === undefined) return null;
  const told = attempt.points.map(({ step, at }) => [step, Date.parse(at)]);
  for (const [step, at] of [...told, [attempt.step ?? -1, end]]) {
    if (step > kept) return since + ((at - since) * Math.max(0, kept - known)) / Math.max(1, step - known);
    if (step >= 0) [known, since] = [step, at];
  }
  return null;
}

/** The loss over the steps, a line for each attempt: where one goes back, its steps were repeated. Without a loss, the steps over time. */
function plot(attempts) {
  const all = attempts.flatMap((attempt) => attempt.points);
  if (!all.length) return el("p", {}, "No step was reported.");
  const hasLoss = all.some((point) => typeof point.loss === "number");
  const across = (point) => (hasLoss ? point.step : Date.parse(point.at));
  const up = (point) => (hasLoss ? point.loss : point.step);
  const shown = all.filter((point) => typeof up(point) === "number");
  const [low, high] = [Math.min(...shown.map(up)), Math.max(...shown.map(up))];
  const [first, last] = [Math.min(...shown.map(across)), Math.max(...shown.map(across))];
  const x = (point) => 60 + (920 * (across(point) - first)) / Math.max(last - first, 1);
  const y = (point) => 140 - (125 * (up(point) - low)) / Math.max(high - low, Number.MIN_VALUE);
  const lines = attempts.map((attempt) => {
    const points = attempt.points.filter((point) => typeof up(point) === "number");
    if (!points.length) return null;
    const words = `attempt ${attempt.attempt}: steps ${points[0].step} to ${points.at(-1).step}${hasLoss ? `, loss ${loss(points[0].loss)} to ${loss(points.at(-1).loss)}` : ""}`;
    const kind = `plot a${attempt.attempt % 3}`;
    return points.length === 1
      ? el("rect", { x: x(points[0]) - 1.5, y: y(points[0]) - 1.5, width: 3, height: 3, class: kind }, el("title", {}, words))
      : el("polyline", { class: kind, points: points.map((point) => `${x(point)},${y(point)}`).join(" ") }, el("title", {}, words));
  });
  const number = (value) => Number(value.toPrecision(4)).toString();
  const what = hasLoss ? "loss over steps" : "steps over time";
  const label = `${what} of ${counted(lines.filter(Boolean).length, "attempt")}: steps ${Math.min(...all.map((p) => p.step))} to ${Math.max(...all.map((p) => p.step))}`;
  return el("div", {}, el("div", { class: "scroll" }, el("svg", { viewBox: "0 0 1000 165", role: "img", "aria-label": label, id: "plot" }, lines.filter(Boolean),
    el("line", { class: "axis", x1: 60, x2: 980, y1: 145, y2: 145 }),
    el("text", { x: 4, y: 16 }, number(high)), el("text", { x: 4, y: 142 }, number(low)),
    hasLoss ? [el("text", { x: 60, y: 160 }, `step ${first}`), el("text", { x: 980, y: 160, "text-anchor": "end" }, `step ${last}`)] : null)),
    el("p", { class: "legend" }, `${what}, a line for each attempt`));
}

const WORKERS = [
  ["Worker", (worker) => worker.name], ["State", (worker) => worker.state],
  ["Step", (worker) => worker.step ?? "", true], ["Loss", (worker) => loss(worker.loss ?? ""), true],
  ["Heard", (worker) => `${since(worker.heard_at)} ago`, true],
  ["Notice", (worker) => (worker.notice_deadline ? `taken away ${clock(worker.notice_deadline)}` : "")],
];
/** Named as in the output and by the command line: `w3`, or `s1w3` where there are slices. */
function workers(list) {
  const hasSlices = list.some((worker) => worker.slice > 0);
  const rows = list.map((worker) => ({ ...worker, name: hasSlices ? `s${worker.slice}w${worker.worker}` : `w${worker.worker}` }));
  return rows.length ? table("Workers of the current attempt", WORKERS, rows, { id: "workers" }) : "";
}

function history(entries, job) {
  const columns = [
    ["Time", (entry) => clock(entry.at)], ["Cause", (entry) => entry.cause], ["By", (entry) => entry.actor],
    ["Phase", (entry) => phase({ phase: entry.to, spec: job.spec })], ["Attempt", (entry) => entry.attempt, true],
    ["Message", (entry) => sentence([entry.message, ...entry.notes.filter((note) => note !== entry.message)].join(" · "))],
  ];
  const left = entries.length - DECISIONS_MAX;
  const caption = left > 0 ? `The newest ${DECISIONS_MAX} of ${entries.length} decisions` : "Every decision, newest first";
  const note = left > 0 ? el("p", {}, `${counted(left, "earlier decision")} left out: rekindle history ${job.id} shows every one.`) : null;
  return el("div", {}, note, table(caption, columns, entries.slice(-DECISIONS_MAX).reverse(), { id: "history" }));
}

/** The newest output, and what comes. At most so many lines are kept; a link of its own leads to the whole. */
function logView(path) {
  const text = el("pre", { class: "panel log", tabindex: 0, id: "log", "aria-label": "Output of the workers" });
  const worker = el("select", { "aria-label": "Worker", onchange: () => restart() }, el("option", { value: "all" }, "all workers"));
  const whole = el("a", { id: "whole" }, "all output as text");
  let stream = null;
  let isLive = true;
  let count = 0;
  let bars = {};
  function add(words, kind) {
    const isAtEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
    const line = el("span", { class: kind }, words + "\n");
    text.append(line);
    count += 1;
    while (count > LINES_MAX) { text.firstChild.remove(); count -= 1; }
    if (isAtEnd) text.scrollTop = text.scrollHeight;
    return line;
  }
  /** An object for each line: what a program says cannot be taken for a mark. A line takes the place of its worker's bar. */
  function show(line) {
    if (line.line === undefined) { bars = {}; return add(`== attempt ${line.attempt} ==`, "mark"); }
    const words = worker.value === "all" && line.workers > 1 ? `[${line.worker}] ${line.line}` : line.line;
    const bar = bars[line.worker];
    if (bar?.isConnected) bar.textContent = plain(words) + "\n";
    const shown = bar?.isConnected ? bar : add(words, null);
    bars[line.worker] = line.is_open ? shown : null;
  }
  function open() {
    whole.setAttribute("href", `${path}/logs?worker=${worker.value}`);
    stream = new EventSource(`${path}/logs?follow=true&brief=true&form=lines&tail=${TAIL_BYTES}&worker=${worker.value}`);
    stream.onmessage = (event) => { for (const line of event.data.split("\n")) show(JSON.parse(line)); };
    stream.addEventListener("end", () => { stream.close(); if (!count) add("Its programs have printed nothing.", "mark"); });
    stream.onerror = () => { if (!isLive) stream?.close(); };
  }
  function restart() { stream?.close(); text.replaceChildren(); count = 0; bars = {}; open(); }
  return {
    node: el("div", {}, el("div", { class: "bar" }, worker, whole), text),
    follow(live, progress) {
      isLive = live;
      // Of the job, not of the TPUs that it has now: an ended one has none.
      const [slices, each] = [progress.slices, progress.slice_workers];
      for (let index = worker.options.length - 1; index < slices * each; index += 1) {
        const [slice, number] = [Math.floor(index / each), index % each];
        worker.append(el("option", { value: `${slice}-${number}` }, slices > 1 ? `slice ${slice}, worker ${number}` : `worker ${number}`));
      }
      if (!stream) restart();
    },
    close() { stream?.close(); stream = null; },
  };
}
