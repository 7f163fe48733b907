#!/usr/bin/env bash
# Builds the image and the agent on this machine, without a registry, and says how large they are, how soon the server answers
# and how much memory it keeps:
#
#   infra/image.sh [FOLDER]
#
# FOLDER has static binaries of an earlier build, which are then taken as they are.
# Needs cargo with the target x86_64-unknown-linux-musl and musl-gcc (else it links glibc statically), buildah, python3, root,
# and gcloud with the Firestore emulator. The stages after the build are those of infra/Dockerfile; the build is cargo's own, here.
# Ends with 1 when a limit is passed.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$(mktemp -d)"
export BUILDAH_ISOLATION=chroot
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
emulator=""
finish() {
  [[ -n "$emulator" ]] && kill -- "-$emulator" 2>/dev/null
  buildah "${storage[@]}" umount --all >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

if [[ -n "${1:-}" ]]; then
  built="$1"
  target=""
elif rustup target list --installed 2>/dev/null | grep -qx x86_64-unknown-linux-musl && command -v musl-gcc >/dev/null; then
  target=x86_64-unknown-linux-musl
  export CC_x86_64_unknown_linux_musl=musl-gcc
else
  target=x86_64-unknown-linux-gnu
  export RUSTFLAGS="-C target-feature=+crt-static"
fi
if [[ -n "$target" ]]; then
  cargo build --locked --profile dist --target "$target" --package rekindle-server --package rekindle-agent
  built="${CARGO_TARGET_DIR:-target}/$target/dist"
fi

# The build stage of the Dockerfile, as far as the later ones take from it.
mkdir -p "$work/build/src/target/dist" "$work/build/etc/ssl/certs"
cp "$built/rekindle-server" "$built/rekindle-agent" "$work/build/src/target/dist/"
cp /etc/ssl/certs/ca-certificates.crt "$work/build/etc/ssl/certs/"
build() {
  buildah "${storage[@]}" bud --quiet --build-context "build=$work/build" --file infra/Dockerfile --target "$1" --tag "$1" "$work/build" >/dev/null
}
build server
build agent
container="$(buildah "${storage[@]}" from --pull-never localhost/server)"
root="$(buildah "${storage[@]}" mount "$container")"
[[ "$(buildah "${storage[@]}" inspect --format '{{.OCIv1.Config.User}}' "$container")" == 65532:65532 ]] || { echo "error: not the user of the image" >&2; exit 1; }
# What a container's runtime gives every image.
mkdir -p "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 444 "$root/dev/urandom" c 1 9

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
firestore="127.0.0.1:$(port)"
setsid gcloud emulators firestore start --quiet --host-port="$firestore" >"$work/firestore.log" 2>&1 &
emulator=$!

agent_mb() { stat -c %s "$built/rekindle-agent" | awk '{ printf "%.1f", $1 / 1e6 }'; }
python3 - "$root" "$firestore" "$(port)" "$(agent_mb)" "$(du -sb --exclude=dev "$root" | cut -f 1)" <<'PY'
import os, socket, statistics, subprocess, sys, time

root, firestore, port, agent_mb, image_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
RUNS = 15
settings = {
    "PORT": str(port), "REKINDLE_HOST": "127.0.0.1", "GOOGLE_CLOUD_PROJECT": "p", "REKINDLE_BUCKET": "gs://b",
    "REKINDLE_CAPACITY": "[{accelerator: v5litepod-*, zone: us-central1-a, kind: spot, usd_per_chip_hour: 0.5}]",
    "REKINDLE_API_URL": "http://127.0.0.1:1", "REKINDLE_RECONCILE_URL": "http://127.0.0.1:1", "REKINDLE_TASKS_LOCATION": "us-central1",
    "REKINDLE_AUTH": "verify", "FIRESTORE_EMULATOR_HOST": firestore, "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
    "REKINDLE_TPU_EMULATOR": "127.0.0.1:1", "REKINDLE_TASKS_EMULATOR": "127.0.0.1:1", "STORAGE_EMULATOR_HOST": "127.0.0.1:1",
}

def enter():
    os.chroot(root)
    os.chdir("/")
    os.setgid(65532)
    os.setuid(65532)

def answered():
    with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
        s.sendall(b"GET /live HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        return s.recv(64).startswith(b"HTTP/1.1 200")

def wait_for(address):
    host, number = address.split(":")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(number)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("error: the Firestore emulator does not come up")

def start(role):
    began = time.monotonic()
    server = subprocess.Popen(["/rekindle-server", role], preexec_fn=enter, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            if answered():
                return server, time.monotonic() - began
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() - began > 20:
            sys.exit(f"error: the server does not answer (exit {server.poll()})")
        time.sleep(0.0002)

wait_for(firestore)
failed = False
def say(what, value, unit, limit):
    global failed
    failed |= value >= limit
    print(f"{what}: {value:.1f} {unit} (below {limit} {unit})")

say("image", image_bytes / 1e6, "MB", 20)
say("agent", agent_mb, "MB", 9)
for role in ("events", "reconcile", "api"):
    times, memory = [], []
    for n in range(RUNS + 1):
        server, took = start(role)
        status = open(f"/proc/{server.pid}/status").read()
        memory.append(int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024 / 1e6)
        server.terminate()
        server.wait()
        if n:  # the first one makes the installation document, and fills the page cache
            times.append(took * 1e3)
    say(f"{role}: exec to the first answer, median of {RUNS}", statistics.median(times), "ms", 30)
    say(f"{role}: idle memory", statistics.median(memory), "MB", 20)
sys.exit(1 if failed else 0)
PY
