import json, os, pathlib, signal, sys, time

env, told = os.environ, []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))      # it will be taken away, or a person ends it
saved = pathlib.Path(env["REKINDLE_CHECKPOINT_DIR"].removeprefix("file://"), f"{env['REKINDLE_SLICE']}-{env['REKINDLE_WORKER']}.json")
saved.parent.mkdir(parents=True, exist_ok=True)
step, x = json.loads(saved.read_text()) if env["REKINDLE_RESUME"] == "1" and saved.exists() else (0, 4.0)
progress = open(env["REKINDLE_PROGRESS_FILE"], "a", buffering=1)
progress.write(f"resumed_from={step}\n" if step else "")
print("from step", step, flush=True)
while step < int(sys.argv[1]):
    time.sleep(float(sys.argv[2]))
    step, x = step + 1, x * 0.99                                 # a step of yours
    progress.write(f"step={step} loss={x**2}\n")
    if told or step % 50 == 0:
        saved.with_suffix(".new").write_text(json.dumps([step, x]))
        saved.with_suffix(".new").replace(saved)                 # whole, or not at all
        progress.write(f"checkpoint={step}\n")
        if told: sys.exit(143)
print("done at", step)
