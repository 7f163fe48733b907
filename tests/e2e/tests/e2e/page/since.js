// What the page tells of changes: those since it was opened, each at its own time, and long sentences in a few lines.
const real = { fetch: window.fetch, EventSource: window.EventSource };
const frame = () => new Promise(requestAnimationFrame);
const streams = [];
window.EventSource = class {
  told = {};
  constructor() { streams.push(this); }
  addEventListener(name, then) { this.told[name] = then; }
  close() {}
};
const HOUR_MS = 3600000;
const moment = (hours) => new Date(Date.now() + hours * HOUR_MS).toISOString();
const job = (id, changed_at, message) => ({
  id, phase: "failed", outcome: "failed", message, revision: 1, changed_at, phase_since: changed_at, created_at: changed_at, attempt: 1,
  owner: "ada", tags: [], resources: [], counters: { preemptions: 0 }, progress: { step: null, step_at: null }, cost_usd: 0, spec: {},
});
const again = (one, message) => ({ ...one, revision: 2, message });
const [listed, brought] = [job("listed", moment(-3), "Listed."), job("brought", moment(-4), "Brought.")];
window.fetch = async () => new Response(JSON.stringify({ jobs: [listed], letters: [], next_page_token: null, is_cut: false }));
const trace = Array.from({ length: 40 }, (_, line) => `File "train.py", line ${line}, in step: the loss is not finite`).join("\n");

try {
  location.hash = "#/events";
  await frame();
  // The page anew, as its stream tells of the last seconds before it was opened, too.
  const { known } = await import(`/site/page.js?again=${Math.random()}`);
  while (!known.jobs.size) await frame();
  const tell = (one) => streams.at(-1).told.job({ lastEventId: "1", data: JSON.stringify(one) });
  const [later, latest] = [moment(1), moment(2)];
  for (const one of [job("before", moment(-1), "Before."), brought, listed]) tell(one);
  tell(job("latest", latest, "Latest."));
  tell(job("later", later, trace));
  // By passes that began before the page was opened, and ended since.
  tell(again(brought, "Brought anew."));
  tell(again(listed, "Listed anew."));
  // A server of an earlier version tells no time.
  const { changed_at: _, ...timeless } = job("timeless", moment(-1), "Timeless.");
  tell(timeless);
  await frame();
  const rows = [...document.querySelectorAll("#events tbody tr")];
  const cells = (number) => rows.map((row) => row.cells[number].textContent);
  const { jobsView } = await import("/site/views.js");
  const main = document.getElementById("main");
  main.replaceChildren();
  const [long, short] = [job("long", later, trace), job("short", later, "It is over.")];
  jobsView(main, { jobs: new Map([["long", long], ["short", short]]), isWhole: true }).close();
  await frame();
  const height = (id) => main.querySelector(`tr[data-job=${id}]`).getBoundingClientRect().height;
  return {
    ids: cells(1),
    are_their_own_times: JSON.stringify(cells(0).toSpliced(2, 1)) === JSON.stringify([latest, later, listed.changed_at, brought.changed_at].map((at) => new Date(at).toLocaleString())),
    lines: height("long") / height("short"),
    has_all: main.querySelector("tr[data-job=long]").textContent.includes("line 39,"),
  };
} finally { Object.assign(window, real); }
