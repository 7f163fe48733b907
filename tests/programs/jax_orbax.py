import os, signal, sys
import jax, jax.numpy as jnp, orbax.checkpoint as ocp

env, told = os.environ, []
slices, each, mine, worker = (int(env["REKINDLE_" + key]) for key in ("SLICES", "WORKERS", "SLICE", "WORKER"))
has_others = slices * each > 1
if has_others:                                                   # on a TPU, and off it; it listens to SIGTERM for all
    jax.distributed.initialize(env["REKINDLE_COORDINATOR"], slices * each, mine * each + worker)
else: signal.signal(signal.SIGTERM, lambda *_: told.append(True))
everywhere = jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices(), "chips"), jax.sharding.PartitionSpec())
train = jax.jit(lambda x: x - 0.01 * jax.grad(lambda x: jnp.sum(x**2))(x))
options = ocp.CheckpointManagerOptions(save_interval_steps=50, max_to_keep=2, create=True)
saved = ocp.CheckpointManager(env["REKINDLE_CHECKPOINT_DIR"].removeprefix("file://"), options=options)
progress = open(env["REKINDLE_PROGRESS_FILE"], "a", buffering=1)
step = (saved.latest_step() or 0) if env["REKINDLE_RESUME"] == "1" else 0
x = jax.jit(lambda: jnp.ones(8), out_shardings=everywhere)()     # of all workers: Orbax saves nothing that is one's own
if step:
    x = saved.restore(step, args=ocp.args.StandardRestore({"x": x}))["x"]
    progress.write(f"resumed_from={step}\n")
while step < int(sys.argv[1]):
    step, x = step + 1, train(x)
    progress.write(f"step={step} loss={float(jnp.sum(x**2))}\n")
    stop = bool(told) or (has_others and saved.reached_preemption(step))
    if saved.save(step, args=ocp.args.StandardSave({"x": x}), force=stop): progress.write(f"checkpoint={step}\n")
    if stop: sys.exit(saved.close() or 143)                      # closed when what it saves is whole
saved.close()
print("done at", step)
