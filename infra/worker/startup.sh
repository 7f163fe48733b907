#!/bin/bash
# The startup script of every Rekindle worker: fetches the agent by its digest and keeps it running.
#
# It runs as root at every boot of every worker, so it must be safe to run again, and it uses no package manager
# (right after boot apt is often locked). What it needs to know stands in the node's metadata:
#   rekindle-agent-url     where the agent is: gs://, https://, http:// or file://
#   rekindle-agent-sha256  its digest
#   rekindle-agent-args    optional: words that stand before the agent's own arguments
#                          (`__agent` if the binary is the command line)
# Environment: REKINDLE_HOME, GCE_METADATA_HOST, STORAGE_EMULATOR_HOST (another Cloud Storage, as the agent has it).
set -euo pipefail

METADATA="http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance"
# The emulator's machines share one file system and one kernel: each keeps to its own home, boot id and devices.
if [[ -n "${TPU_EMULATOR:-}" ]]; then
  export REKINDLE_HOME="${REKINDLE_HOME:-$HOME/rekindle}"
  export REKINDLE_BOOT_ID="${REKINDLE_BOOT_ID:-${TPU_EMULATOR_BOOT_ID:-}}"
  export REKINDLE_DEV_DIR="${REKINDLE_DEV_DIR:-$REKINDLE_HOME/dev}"
  export REKINDLE_LIBTPU_LOCK="${REKINDLE_LIBTPU_LOCK:-$REKINDLE_HOME/libtpu_lockfile}"
fi
export REKINDLE_HOME="${REKINDLE_HOME:-/var/lib/rekindle}"
BIN="$REKINDLE_HOME/bin"
KEPT="$REKINDLE_HOME.agent"

# On a full disk nothing is said, and all goes on: there may be room later.
say() { echo "rekindle: $*" >&2 || true; }
has() { command -v "$1" >/dev/null 2>&1; }

# fetch_plain URL FILE HEADER: HTTP/1.0 over bash's own sockets, for machines that have no other client.
fetch_plain() {
  local url="$1" file="$2" header="$3" rest hostport host port path line status
  rest="${url#http://}"
  hostport="${rest%%/*}"
  path="/${rest#*/}"
  host="${hostport%%:*}"
  port=80
  [[ "$hostport" == *:* ]] && port="${hostport##*:}"
  exec 9<>"/dev/tcp/$host/$port" || return 1
  printf 'GET %s HTTP/1.0\r\nHost: %s\r\n%s\r\nConnection: close\r\n\r\n' "$path" "$hostport" "$header" >&9
  IFS= read -r -t 30 status <&9 || { exec 9>&-; return 1; }
  while IFS= read -r -t 30 line <&9 && [[ -n "${line%$'\r'}" ]]; do :; done
  if [[ "$status" != *" 200"* ]]; then
    exec 9>&-
    say "$url answers ${status%$'\r'}"
    return 1
  fi
  cat <&9 >"$file"
  exec 9>&-
}

# fetch URL FILE [HEADER]: with whatever client the machine has. curl goes on where a part of the file ends.
fetch() {
  local url="$1" file="$2" header="${3:-X-Rekindle: startup}" code=0
  local -a direct=() resume=()
  # A real network would let the packets go nowhere.
  if [[ "${TPU_EMULATOR_EGRESS:-}" == none && "$url" != "$METADATA"/* ]]; then
    say "no way to $url: this machine has no external address, and its network has no Cloud NAT"
    return 7
  fi
  if has curl; then
    [[ "$url" == http://* ]] && direct=(--noproxy '*')
    [[ -s "$file" ]] && resume=(-C -)
    curl -fsSL --connect-timeout 10 --speed-limit 1 --speed-time 30 ${direct[@]+"${direct[@]}"} \
      ${resume[@]+"${resume[@]}"} -H "$header" -o "$file" "$url" || code=$?
    # The server refuses, or cannot go on in the middle: what is there is of no use.
    [[ "$code" == 22 || "$code" == 33 || "$code" == 36 ]] && rm -f "$file"
    return "$code"
  elif has wget; then
    [[ "$url" == http://* ]] && direct=(--no-proxy)
    wget -q -T 30 ${direct[@]+"${direct[@]}"} --header="$header" -O "$file" "$url"
  elif has python3; then
    python3 - "$url" "$file" "$header" <<'PY'
import shutil, sys, urllib.request
url, path, header = sys.argv[1:]
name, value = header.split(":", 1)
handlers = [urllib.request.ProxyHandler({})] if url.startswith("http://") else []
opener = urllib.request.build_opener(*handlers)
request = urllib.request.Request(url, headers={name: value.strip()})
with opener.open(request, timeout=30) as answer, open(path, "wb") as out:
    shutil.copyfileobj(answer, out)
PY
  elif [[ "$url" == http://* ]]; then
    fetch_plain "$url" "$file" "$header"
  else
    say "no curl, wget or python3 to fetch $url"
    return 1
  fi
}

# metadata PATH: one value; fails if there is none.
metadata() {
  local file="$BIN/metadata.$$"
  fetch "$METADATA/$1" "$file" "Metadata-Flavor: Google" 2>/dev/null || { rm -f "$file"; return 1; }
  cat "$file"
  rm -f "$file"
}

# until_done WHAT COMMAND...: tries for ever, with growing waits; without it nothing works.
until_done() {
  local what="$1" wait=1
  shift
  until "$@"; do
    say "$what failed; next try in $wait s"
    sleep "$wait"
    # Not longer: the machine costs what it costs while it waits.
    wait=$((wait < 16 ? wait * 2 : 20))
  done
}

is_agent() { [[ -f "$1" ]] && echo "$SHA256  $1" | sha256sum --check --status; }

read_attributes() {
  URL="$(metadata attributes/rekindle-agent-url)" && [[ -n "$URL" ]] || return 1
  SHA256="$(metadata attributes/rekindle-agent-sha256)" && [[ "$SHA256" =~ ^[0-9a-f]{64}$ ]] || return 1
  ARGS="$(metadata attributes/rekindle-agent-args || true)"
  # They become part of a systemd unit, which has quoting rules of its own; plain words need none.
  [[ "$ARGS" =~ ^[A-Za-z0-9_./:=\ -]*$ ]] || { say "rekindle-agent-args is not a list of plain words"; return 1; }
}

get_agent() {
  is_agent "$AGENT" && return 0
  local part="$AGENT.part" storage="${STORAGE_EMULATOR_HOST:-https://storage.googleapis.com}" object bucket token
  case "$URL" in
    gs://*)
      [[ "$storage" == *://* ]] || storage="http://$storage"
      bucket="${URL#gs://}"
      object="${bucket#*/}"
      bucket="${bucket%%/*}"
      token="$(metadata service-accounts/default/token)" || return 1
      token="${token#*\"access_token\"}"
      token="${token#*\"}"
      token="${token%%\"*}"
      fetch "${storage%/}/storage/v1/b/$bucket/o/${object//\//%2F}?alt=media" "$part" \
        "Authorization: Bearer $token" || return 1
      ;;
    file://*) cp "${URL#file://}" "$part" || return 1 ;;
    *) fetch "$URL" "$part" || return 1 ;;
  esac
  if ! is_agent "$part"; then
    say "$URL does not have the digest $SHA256"
    rm -f "$part"
    return 1
  fi
  chmod 0755 "$part"
  mv -f "$part" "$AGENT"
}

install_unit() {
  # KillMode=process: the program outlives a restart of the agent, which adopts it again. OOMPolicy=continue: a program
  # that is killed for want of memory is the agent's to report, no reason to end the agent. Output waits in memory: no
  # disk, slow or full, holds up a program.
  # A program may remove all that is the agent's. Beside that the agent is kept under a second name, which takes no room.
  # It is whole or not there; and where an older one is, the unit leaves that alone.
  ln -f "$AGENT" "$KEPT" 2>/dev/null || { cp -f "$AGENT" "$KEPT.part" && mv -f "$KEPT.part" "$KEPT"; } \
    || { rm -f "$KEPT.part"; say "cannot keep the agent as $KEPT"; }
  cat >/etc/systemd/system/rekindle-agent.service <<UNIT
[Unit]
Description=Rekindle agent
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStartPre=-/bin/bash -c 'test -x $AGENT || { mkdir -p $BIN && cp -f $KEPT $AGENT.part && echo "$SHA256  $AGENT.part" | sha256sum --check --status && mv -f $AGENT.part $AGENT; }'
ExecStart=$AGENT $ARGS
Environment=REKINDLE_HOME=$REKINDLE_HOME
Environment=REKINDLE_BUFFER_DIR=/dev/shm/rekindle
Restart=always
RestartSec=1
RestartPreventExitStatus=0
SuccessExitStatus=75
KillMode=process
OOMPolicy=continue
OOMScoreAdjust=-900
TimeoutStopSec=120
LimitNOFILE=1048576
LimitMEMLOCK=infinity
LimitSTACK=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  # Not `enable`: at the next boot this script brings the agent that the metadata names then.
  systemctl restart rekindle-agent.service
}

until_done "making $BIN" mkdir -p "$BIN"
until_done "reading the node's metadata" read_attributes
AGENT="$BIN/rekindle-agent-$SHA256"
until_done "fetching the agent" get_agent
# Bash may need a temporary file for this, for which a full disk has no room.
read_words() { read -r -a words <<<"$ARGS"; }
until_done "reading the agent's arguments" read_words

if [[ -d /run/systemd/system && "$EUID" == 0 && -z "${TPU_EMULATOR:-}" ]]; then
  install_unit
  say "the agent runs as rekindle-agent.service"
  exit 0
fi

# Without systemd this script is what starts the agent again. 0: the generation is of no use any more.
child=
code=0
trap '[[ -n "$child" ]] && kill -TERM "$child" 2>/dev/null; stopped=1' TERM INT
stopped=
while [[ -z "$stopped" ]]; do
  # A program may have removed it, with all that is the agent's.
  if [[ ! -x "$AGENT" ]] && ! { mkdir -p "$BIN" && get_agent; }; then
    say "fetching the agent again failed; next try in 5 s"
    sleep 5
    continue
  fi
  "$AGENT" ${words[@]+"${words[@]}"} &
  child=$!
  code=0
  wait "$child" || code=$?
  # A signal to this script ends the wait before the agent has ended.
  while [[ -n "$stopped" ]] && kill -0 "$child" 2>/dev/null; do wait "$child" || code=$?; done
  [[ "$code" == 0 ]] && exit 0
  [[ -z "$stopped" ]] && { say "the agent ended with $code; starting it again"; sleep 1; }
done
exit "$code"
