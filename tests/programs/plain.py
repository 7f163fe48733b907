import json, os, pathlib, signal, sys, time

env = {name.removeprefix("REKINDLE_"): value for name, value in os.environ.items()}
saved = pathlib.Path(env["CHECKPOINT_DIR"].removeprefix("file://")) / f"worker-{env['WORKER']}.json"
resumes = env["RESUME"] == "1" and saved.exists()
state = json.loads(saved.read_text()) if resumes else {"step": 0, "x": 4.0}
progress = open(env["PROGRESS_FILE"], "a", buffering=1)
if resumes:
    progress.write(f"resumed_from={state['step']}\n")
print("from step", state["step"], flush=True)
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))     # it will be taken away, or a person ends it

while state["step"] < int(sys.argv[1]):
    state = {"step": state["step"] + 1, "x": state["x"] * 0.99}  # a step of yours
    progress.write(f"step={state['step']} loss={state['x'] ** 2}\n")
    if told or state["step"] % 50 == 0:
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.with_suffix(".new").write_text(json.dumps(state))
        saved.with_suffix(".new").replace(saved)                 # whole, or not at all
        progress.write(f"checkpoint={state['step']}\n")
    if told:
        sys.exit(143)
    time.sleep(float(sys.argv[2]))
print("done at", state)
