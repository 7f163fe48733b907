"""A small data-parallel training program, as people write them with JAX: one process on each worker of a slice.

It speaks to nobody but JAX, and knows of its manager only the environment (`REKINDLE_*`) that every job finds. Its
parameters depend on the number of steps alone: data by step and worker, one thread, one order of reduction. So a run
that was broken and brought back must end with the bytes of a run that nobody disturbed.

    train.py STEPS CHECKPOINT_EVERY HOLD ORDERS

ORDERS is a folder in which a test may put `fail-W`, `memory-W` or `disk-W`: the worker W then does what it says, once.
After the step HOLD all workers wait for the file `go-ATTEMPT` there, so that what happens to them, and what is looked
at meanwhile, does not depend on the machine's speed.
"""

import hashlib
import json
import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

FEATURES, HIDDEN, BATCH = 64, 128, 32
LEARNING_RATE = 0.05


def environment(name):
    return os.environ["REKINDLE_" + name]


WORKER, WORKERS = int(environment("WORKER")), int(environment("WORKERS"))
CHECKPOINTS = environment("CHECKPOINT_DIR").removeprefix("file://")


def report(**words):
    """A line for whoever watches the progress."""
    with open(environment("PROGRESS_FILE"), "a") as file:
        file.write(" ".join(f"{name}={value}" for name, value in words.items()) + "\n")


def first_parameters():
    random = np.random.default_rng(7)
    return {
        "w1": random.standard_normal((FEATURES, HIDDEN), dtype=np.float32) * 0.1,
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": random.standard_normal((HIDDEN, 1), dtype=np.float32) * 0.1,
        "b2": np.zeros(1, np.float32),
    }


def batch(step):
    """This worker's part of the data of a step."""
    random = np.random.default_rng(step * WORKERS + WORKER)
    x = random.standard_normal((BATCH, FEATURES), dtype=np.float32)
    return x, np.sin(x.sum(axis=1, keepdims=True) / 4)


def loss_of(parameters, x, y):
    hidden = jnp.tanh(x @ parameters["w1"] + parameters["b1"])
    return jnp.mean((hidden @ parameters["w2"] + parameters["b2"] - y) ** 2)


def newest_checkpoint():
    if environment("RESUME") != "1" or not os.path.isdir(CHECKPOINTS):
        return 0
    names = [name for name in os.listdir(CHECKPOINTS) if name.startswith("step-") and name.endswith(".npz")]
    return max((int(name[5:-4]) for name in names), default=0)


def save(step, parameters):
    """Writes a checkpoint, whole or not at all."""
    os.makedirs(CHECKPOINTS, exist_ok=True)
    new = os.path.join(CHECKPOINTS, f"new-{step}")
    with open(new, "wb") as file:
        np.savez(file, **parameters)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, os.path.join(CHECKPOINTS, f"step-{step}.npz"))


def save_final(step, parameters):
    digest = hashlib.sha256()
    for name in sorted(parameters):
        digest.update(name.encode() + parameters[name].tobytes())
    new = os.path.join(CHECKPOINTS, "final.new")
    with open(new, "w") as file:
        json.dump({"step": step, "digest": digest.hexdigest()}, file)
    os.replace(new, os.path.join(CHECKPOINTS, "final.json"))


def ordered(orders, what):
    """True once, if the test ordered it."""
    try:
        os.remove(os.path.join(orders, f"{what}-{WORKER}"))
        return True
    except FileNotFoundError:
        return False


def carry_out(orders, step):
    """The faults of a program's own."""
    if ordered(orders, "fail"):
        raise ValueError(f"the labels of step {step} have shape (31, 1), not (32, 1)")
    if ordered(orders, "memory"):
        kept = []
        while True:
            kept.append(np.ones(1 << 20))
    if ordered(orders, "disk"):
        with open("shuffle-cache.bin", "wb") as file:
            while True:
                file.write(bytes(1 << 20))


def wait_for_go(orders):
    while not os.path.exists(os.path.join(orders, "go-" + environment("ATTEMPT"))):
        time.sleep(0.01)


def main():
    steps, checkpoint_every, hold = (int(word) for word in sys.argv[1:4])
    orders = sys.argv[4]
    jax.distributed.initialize(
        coordinator_address=environment("COORDINATOR"),
        coordinator_bind_address=environment("COORDINATOR"),
        num_processes=WORKERS,
        process_id=WORKER,
        initialization_timeout=30,
        heartbeat_timeout_seconds=10,
        shutdown_timeout_seconds=10,
    )
    mesh = jax.make_mesh((WORKERS,), ("data",))
    replicated, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

    @jax.jit
    def train_step(parameters, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradients), loss

    step, parameters = newest_checkpoint(), first_parameters()
    if step > 0:
        with np.load(os.path.join(CHECKPOINTS, f"step-{step}.npz")) as saved:
            parameters = {name: saved[name] for name in saved.files}
        report(resumed_from=step)
    print(f"worker {WORKER} of {WORKERS}: {jax.device_count()} devices, from step {step}", flush=True)
    parameters = jax.tree.map(lambda p: jax.make_array_from_process_local_data(replicated, p), parameters)

    while step < steps:
        step += 1
        x, y = (jax.make_array_from_process_local_data(split, part) for part in batch(step))
        parameters, loss = train_step(parameters, x, y)
        loss = float(loss)
        words = {"step": step, "loss": f"{loss:.6f}"}
        leaves = multihost_utils.reached_preemption_sync_point(step)
        if step % checkpoint_every == 0 or step == steps or leaves:
            if WORKER == 0:
                save(step, {name: np.asarray(p.addressable_data(0)) for name, p in parameters.items()})
                print(f"saved checkpoint {step}", flush=True)
            words["checkpoint"] = step
        report(**words)
        if WORKER == 0:
            print(f"step {step}/{steps} loss {loss:.6f}", flush=True)
        if leaves:
            print("leaving after SIGTERM", flush=True)
            os._exit(128 + signal.SIGTERM)
        if step == hold:
            wait_for_go(orders)
        carry_out(orders, step)

    if WORKER == 0:
        save_final(step, {name: np.asarray(p.addressable_data(0)) for name, p in parameters.items()})
        print("saved final parameters; training finished", flush=True)


main()
