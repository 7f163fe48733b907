import os, signal, sys
import jax, jax.numpy as jnp, orbax.checkpoint as ocp

env = {name.removeprefix("REKINDLE_"): value for name, value in os.environ.items()}
if int(env["WORKERS"]) > 1:
    jax.distributed.initialize()                                 # on a TPU it finds the others by itself
told = []
if jax.process_count() == 1:                                     # else JAX listens to SIGTERM for all of them
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
mesh = jax.sharding.Mesh(jax.devices(), "chips")                 # of all workers: Orbax saves nothing that is one's own
whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
train = jax.jit(lambda x: x - 0.01 * jax.grad(lambda x: jnp.sum(x**2))(x))

keep = ocp.CheckpointManagerOptions(save_interval_steps=50, max_to_keep=2, create=True)
checkpoints = ocp.CheckpointManager(env["CHECKPOINT_DIR"].removeprefix("file://"), options=keep)
step, x = 0, jax.jit(lambda: jnp.ones(8), out_shardings=whole)()
with open(env["PROGRESS_FILE"], "a", buffering=1) as progress:
    if env["RESUME"] == "1" and checkpoints.latest_step() is not None:
        step = checkpoints.latest_step()
        x = checkpoints.restore(step, args=ocp.args.StandardRestore({"x": x}))["x"]
        progress.write(f"resumed_from={step}\n")
    while step < int(sys.argv[1]):
        step, x = step + 1, train(x)
        progress.write(f"step={step} loss={float(jnp.sum(x**2))}\n")
        stop = told or (jax.process_count() > 1 and checkpoints.reached_preemption(step))
        if checkpoints.save(step, args=ocp.args.StandardSave({"x": x}), force=bool(stop)):
            progress.write(f"checkpoint={step}\n")
        if stop:
            checkpoints.wait_until_finished()
            sys.exit(143)
checkpoints.close()
print("done at", step)
