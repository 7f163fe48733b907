// What a page that nobody looks at still asks for: of a draw that was under way when it was hidden, and of one that failed.
const real = { fetch: window.fetch, EventSource: window.EventSource, setTimeout: window.setTimeout };
const seen = { begun: 0, ended: 0, timers: 0, streams: [], gate: null };
window.fetch = async (...request) => {
  seen.begun += 1;
  try {
    await seen.gate;
    const answer = await real.fetch.apply(window, request);
    // Whole, so that nothing is waited for afterwards.
    return new Response([204, 304].includes(answer.status) ? null : await answer.text(), { status: answer.status, headers: answer.headers });
  } finally { seen.ended += 1; }
};
window.EventSource = class extends real.EventSource {
  constructor(url) { super(url); seen.streams.push(this); }
};
window.setTimeout = (what, ms, ...rest) => {
  if (ms >= 1000) seen.timers += 1;
  return real.setTimeout.call(window, what, ms, ...rest);
};
const hide = (isHidden) => {
  Object.defineProperty(document, "hidden", { get: () => isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};
const frames = async (count) => { for (let n = 0; n < count; n += 1) await new Promise(requestAnimationFrame); };
const until = async (is) => { while (!is()) await frames(1); };
const open = () => seen.streams.filter((stream) => stream.readyState !== real.EventSource.CLOSED);

const found = {};
for (const how of ["ends", "fails"]) {
  hide(true);
  Object.assign(seen, { begun: 0, ended: 0, timers: 0, gate: null, streams: [] });
  hide(false);
  await until(() => open().length === 2 && seen.timers > 0);
  const awake = seen.streams.map((stream) => new URL(stream.url).pathname).sort();
  hide(true);
  let pass;
  seen.gate = new Promise((resolve, reject) => { pass = how === "ends" ? resolve : () => reject(new Error("cut")); });
  const before = seen.ended;
  hide(false);
  await until(() => seen.begun - before >= 3);
  hide(true);
  const begun = seen.begun;
  seen.timers = 0;
  pass();
  await until(() => seen.ended >= begun);
  await frames(30);
  found[how] = { awake, streams: open().length, timers: seen.timers, asked: seen.begun - begun };
}
seen.gate = null;
Object.assign(window, real);
hide(false);
done(JSON.stringify(found));
