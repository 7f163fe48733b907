import os, pathlib, signal, sys
import torch, torch_xla, torch_xla.core.xla_model as xm

env, told = os.environ, []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
saved = pathlib.Path(env["REKINDLE_CHECKPOINT_DIR"].removeprefix("file://"), f"{env['REKINDLE_SLICE']}-{env['REKINDLE_WORKER']}.pt")
saved.parent.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).to(torch_xla.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
progress = open(env["REKINDLE_PROGRESS_FILE"], "a", buffering=1)
step, x = 0, torch.ones(4, 8, device=torch_xla.device())
if env["REKINDLE_RESUME"] == "1" and saved.exists():
    state = torch.load(saved)
    step = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    progress.write(f"resumed_from={step}\n")
while step < int(sys.argv[1]):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    xm.optimizer_step(optimizer)                                 # adds up the gradients of all processes
    torch_xla.sync()
    step += 1
    progress.write(f"step={step} loss={loss.item()}\n")
    if told or step % 50 == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        xm.save(state, saved.with_suffix(".new"), master_only=False)
        saved.with_suffix(".new").replace(saved)                 # whole, or not at all
        progress.write(f"checkpoint={step}\n")
        if told: sys.exit(143)
print("done at", step)
