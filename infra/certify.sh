#!/usr/bin/env bash
# Asks a real project what nobody has written down about the Cloud TPU API, and records the answers, redacted, so that the
# emulator can be corrected with them. Under 30 minutes and 2 dollars: one spot v5litepod-4 at a time.
#
#   PROJECT=my-project ZONE=us-west4-a infra/certify.sh OUT_FOLDER
#
# TPU_API names another endpoint, such as the emulator's. Needs curl; gcloud for the token, the audit log and the triggers.
# Everything that it makes begins with `rk-certify-` and is deleted at the end, however it ends.
set -euo pipefail

out="${1:?a folder for the answers}"
project="${PROJECT:?the project}"
zone="${ZONE:?a zone with quota for spot v5litepod-4}"
api="${TPU_API:-https://tpu.googleapis.com/}"
api="${api%/}"
accelerator="${ACCELERATOR:-v5litepod-4}"
runtime="${RUNTIME:-v2-alpha-tpuv5-lite}"
# Between two looks, in seconds; the emulator is faster than the cloud.
pause="${PAUSE:-5}"
parent="projects/$project/locations/$zone"
stamp="$(date +%s)"
node="rk-certify-$stamp"
request="rk-certify-q-$stamp"
is_cloud=0
[[ "$api" == https://*.googleapis.com ]] && is_cloud=1
mkdir -p "$out"

headers=()
if [[ $is_cloud = 1 ]]; then headers=(-H "Authorization: Bearer $(gcloud auth print-access-token)"); fi

# Nothing of the project is kept: its id and number, addresses, accounts, tokens.
redact() {
  sed -E -e "s/$project/PROJECT/g" -e 's/projects\/[0-9]+/projects\/NUMBER/g' -e 's/[0-9]{1,3}(\.[0-9]{1,3}){3}/ADDRESS/g' \
    -e 's/[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+/ACCOUNT/g'
}

# call NAME METHOD PATH [BODY]: records status and body under NAME; prints the body, leaves the status in $status.
status=000
call() {
  local body
  body="$(curl -sS -o - -w '\n%{http_code}' -X "$2" "${headers[@]}" -H 'Content-Type: application/json' ${4:+--data "$4"} "$api/$3")"
  status="${body##*$'\n'}"
  body="${body%$'\n'*}"
  { printf '%s %s\n%s\n' "$2" "${3//$project/PROJECT}" "$status"; printf '%s\n' "$body" | redact; } >"$out/$1.txt"
  printf '%s' "$body" >"$out/.last"
}
last() { cat "$out/.last"; }
# The first value of a field of the last answer.
field() { sed -nE "s/.*\"$1\": *\"([^\"]*)\".*/\1/p" "$out/.last" | head -n 1; }
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt" >&2; }

# until_node STATE|gone SECONDS: waits; the seconds that it took are in $took.
until_node() {
  local began=$SECONDS
  while ((SECONDS - began < $2)); do
    call wait GET "v2/$parent/nodes/$node"
    took=$((SECONDS - began))
    if [[ "$1" = gone && $status = 404 ]] || [[ "$(field state)" = "$1" ]]; then return 0; fi
    if [[ "$1" = READY && $status = 404 ]]; then return 1; fi
    sleep "$pause"
  done
  return 1
}

finish() {
  local code=$?
  set +e
  call end-request DELETE "v2/$parent/queuedResources/$request?force=true"
  call end-node DELETE "v2/$parent/nodes/$node"
  until_node gone 900
  for kind in nodes queuedResources; do
    call "left-$kind" GET "v2/projects/$project/locations/-/$kind"
    if last | grep -q "rk-certify-"; then say "LEFT: $kind of this run are still there; see $out/left-$kind.txt and delete them"; code=1; fi
  done
  rm -f "$out/.last" "$out/wait.txt"
  exit "$code"
}
trap finish EXIT

spot="{\"acceleratorType\":\"$accelerator\",\"runtimeVersion\":\"$runtime\",\"schedulingConfig\":{\"spot\":true}}"
create() { call "$1" POST "v2/$parent/nodes?nodeId=$node" "$spot"; }

# 1. What a wrong runtime version is called (facts 8.2).
call wrong-runtime POST "v2/$parent/nodes?nodeId=$node" "${spot/$runtime/no-such-runtime}"
say "wrong runtime version: $status"

# 2. What an operation's metadata is called; whether a delete is refused while a node is made (8.4, 8.7).
create create-first
say "create: $status, metadata of type $(field @type)"
call delete-while-creating DELETE "v2/$parent/nodes/$node"
say "delete while it is made: $status"
until_node gone 900 && say "gone $took s after the delete" || say "not gone in 15 minutes"

# 3. When a name may be used again after the delete is done (8.4).
began=$SECONDS
for _ in $(seq 1 60); do
  create create-again
  [[ $status = 200 ]] && break
  sleep "$pause"
done
say "the same name again: $status after $((SECONDS - began)) s"

# 4. A node's life: how long until READY, what it shows, what its audit entries say (8.3, 8.6).
if until_node READY 900; then
  call node-ready GET "v2/$parent/nodes/$node"
  say "READY after $took s"
else
  call operations GET "v2/$parent/operations?pageSize=5"
  say "no READY: see operations.txt for the words of the failure"
fi
call delete-ready DELETE "v2/$parent/nodes/$node"
until_node gone 900 && say "gone $took s after the delete of a READY node"

# 5. A queued resource: whether it may be deleted without force while ACTIVE (8.1).
call request-create POST "v2/$parent/queuedResources?queuedResourceId=$request" \
  "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"$parent\",\"nodeId\":\"$node\",\"node\":{\"acceleratorType\":\"$accelerator\",\"runtimeVersion\":\"$runtime\"}}]},\"spot\":{}}"
say "queued resource: $status"
began=$SECONDS
while ((SECONDS - began < 600)); do
  call request-state GET "v2/$parent/queuedResources/$request"
  state="$(field state)"
  [[ "$state" = ACTIVE || "$state" = FAILED || "$state" = SUSPENDED ]] && break
  sleep "$pause"
done
say "queued resource: ${state:-not told} after $((SECONDS - began)) s"
call request-delete-without-force DELETE "v2/$parent/queuedResources/$request"
say "delete without force while ${state:-not told}: $status"
call request-delete-with-force DELETE "v2/$parent/queuedResources/$request?force=true"
say "delete with force: $status"

# 6. The body of the refusal above the creates of a minute (8.5): creates that cannot succeed cost nothing.
for count in $(seq 1 120); do
  call rate POST "v2/$parent/nodes?nodeId=$node-rate" "${spot/$runtime/no-such-runtime}"
  if [[ $status = 429 ]]; then break; fi
done
say "creates in a row: $status after $count"

# 7. What only the cloud has: audit entries and their delay, triggers, deadlines.
if [[ $is_cloud = 1 ]]; then
  gcloud logging read "protoPayload.serviceName=\"tpu.googleapis.com\" AND protoPayload.resourceName:\"$node\"" \
    --project="$project" --freshness=1h --limit=20 --format=json | redact >"$out/audit.json"
  gcloud logging read 'protoPayload.methodName="compute.instances.preempted" AND protoPayload.resourceName:"/instances/t1v-n-"' \
    --project="$project" --freshness=30d --limit=5 --format=json | redact >"$out/preempted.json"
  gcloud scheduler jobs describe rekindle-tick --project="$project" --location="${REGION:-us-central1}" --format=json 2>/dev/null |
    redact >"$out/tick.json" || say "no tick in ${REGION:-us-central1}: is Rekindle deployed there?"
fi
say "answers are in $out"
