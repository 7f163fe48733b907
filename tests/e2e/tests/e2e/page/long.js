// A job of many TPUs, attempts and decisions, as its view draws it: what is left out is told, and lost work is seen.
const real = { fetch: window.fetch, EventSource: window.EventSource };
const at = (second) => new Date(Date.UTC(2026, 0, 1) + second * 1000).toISOString();
const frames = async (count) => { for (let n = 0; n < count; n += 1) await new Promise(requestAnimationFrame); };
window.EventSource = class { addEventListener() {} close() {} };
const { jobView } = await import("/site/job.js");
const { loss, sentence, times } = await import("/site/parts.js");

/** What a view shows of a job with this history and these steps. */
async function shown(id, entries, attempts) {
  const answers = {
    history: { entries, next_page_token: null },
    explain: { paragraph: "", facts: [] },
    progress: { attempts, workers: [], slices: 1, slice_workers: 1 },
    [id]: {
      id, revision: 1, phase: "failed", message: "", desired: "run", attempt: entries.at(-1).attempt, generation: entries.at(-1).generation,
      resources: [], tags: [], owner: "", submitted_by: "", created_at: at(0), cost_usd: 0, spec: {}, progress: {},
      counters: {}, chip_hours: { total: 0, useful: 0, repeated: 0, waiting: 0 }, last_end: null,
    },
  };
  window.fetch = async (path) => new Response(JSON.stringify(answers[new URL(path, location).pathname.split("/").at(-1)]));
  const main = document.createElement("main");
  const view = jobView(main, id);
  while (!main.querySelector("#history")) {
    const fault = main.querySelector(".error");
    if (fault) throw new Error(fault.textContent);
    await frames(1);
  }
  view.close();
  const svg = main.querySelector("#timeline");
  const words = (css) => [...main.querySelectorAll(css)].map((node) => node.textContent);
  const height = Number(svg.getAttribute("viewBox").split(" ")[3]);
  const marks = [...svg.querySelectorAll("rect")].map((rect) => Number(rect.getAttribute("y")));
  return {
    label: svg.getAttribute("aria-label"),
    rows: words("#timeline text").filter((text) => text.startsWith("TPU")).length,
    newest: words("#timeline text").filter((text) => text.startsWith("TPU")).at(-1),
    are_inside: marks.every((y) => y >= 0 && y < height - 22),
    marks: new Set(marks).size,
    notes: words("p").filter((text) => /newest|earlier/.test(text)),
    caption: words("#history caption")[0],
    decisions: main.querySelectorAll("#history tbody tr").length,
    lost: words("#timeline .lost title"),
    drawn: [...svg.querySelectorAll("rect")].map((rect) => {
      const [x, y, width] = ["x", "y", "width"].map((name) => Number(Number(rect.getAttribute(name)).toFixed(1)));
      return [rect.getAttribute("class"), x, y, width];
    }),
  };
}
const entry = (second, to, attempt) => ({
  at: at(second), cause: "hint", actor: "rekindle", to, attempt, generation: attempt, message: "", notes: [],
});
const points = (attempt, steps) => ({ attempt, points: steps.map(([second, step]) => ({ at: at(second), step })) });

try {
  const many = [...Array.from({ length: 340 }, (_, index) => entry(index * 10, "running", index + 1)), entry(3400, "failed", 340)];
  const three = [
    entry(0, "running", 1), entry(40, "recovering", 1), entry(50, "running", 2), entry(60, "recovering", 2),
    entry(70, "running", 3), entry(100, "failed", 3),
  ];
  // A person's note, long after the end.
  const noted = [...three, entry(230, "failed", 3)];
  const first = points(1, [[10, 10], [20, 20], [30, 30], [40, 40]]);
  return {
    losses: ["0.038480148660977126", "1234567.891", "-0.00001234567", "2.31", "nan of it all"].map(loss),
    said: sentence("run `rekindle up dev`, or `").map((part) => part.outerHTML ?? part),
    times: [1, 2, 3].map((count) => times("preempted", count)),
    many: await shown("many", many, []),
    few: await shown("few", noted, [first, points(2, []), points(3, [[80, 21], [95, 51]])]),
    none_kept: await shown("none-kept", three, [first, points(2, []), points(3, [[80, 1], [95, 51]])]),
  };
} finally { Object.assign(window, real); }
