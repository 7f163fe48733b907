#!/usr/bin/env bash
# Asks a real project what nobody has written down about the Cloud TPU API and the platform around it, and records the answers,
# redacted, so that the emulator can be corrected with them. Under 30 minutes and 2 dollars: one spot v5litepod-4 at a time.
#
#   PROJECT=my-project ZONE=us-west4-a REGION=us-central1 infra/certify.sh OUT_FOLDER
#
# TPU_API names another endpoint, such as the emulator's, and PLATFORM_API another one for all other services; the others are asked
# only in the cloud, or where PLATFORM_API is set. Needs curl, and gcloud for the token.
# Everything that it makes begins with `rk-certify-` and is deleted at the end, however it ends.
#
# What is asked, by the names under which the lines of summary.txt tell of it:
#   TPU API   request-without-force  delete of a queued resource without force while ACTIVE
#             runtime-version        the words for a runtime version that there is not
#             preempted-entry        the entry that a preempted VM of a TPU leaves
#             name-again             when a name may be used again; whether a delete is refused while a node is made
#             creates-a-minute       the refusal above the creates of a minute
#             operation-details      what the operation of a create says in the end
#             metadata-type          the type of an operation's metadata
#             ironwood-price         whether there is a price of TPU7x, and which
#   platform  audit-delay            how long audit entries take
#             token-signatures       whether Cloud Run takes the signature off tokens
#             delete-price           the price of a document's delete
#             task-names             for how long the name of a deleted task is taken
#             run-timeout            a service's usual and longest timeout
#             attempt-deadline       the usual deadline of a Scheduler job
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
region="${REGION:-us-central1}"
platform="${PLATFORM_API:-}"
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

# call NAME METHOD PATH [BODY]: records status and body under NAME, leaves the status in $status.
status=000
call() { ask "$1" "$2" "$api" "${@:3}"; }
# at SERVICE NAME METHOD PATH [BODY]: the same of another service of Google's.
at() { ask "$2" "$3" "${platform:-https://$1.googleapis.com}" "${@:4}"; }
ask() {
  local body
  body="$(curl -sS -o - -w '\n%{http_code}' -X "$2" "${headers[@]}" -H 'Content-Type: application/json' ${5:+--data "$5"} "$3/$4")"
  status="${body##*$'\n'}"
  body="${body%$'\n'*}"
  { printf '%s %s\n%s\n' "$2" "${4//$project/PROJECT}" "$status"; printf '%s\n' "$body" | redact; } >"$out/$1.txt"
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
  if [[ -n "${queue:-}" ]]; then at cloudtasks end-queue DELETE "v2/$queue"; fi
  if [[ -n "${job:-}" ]]; then at cloudscheduler end-job DELETE "$job"; fi
  for kind in nodes queuedResources ${job:+jobs}; do
    if [[ "$kind" = jobs ]]; then at cloudscheduler left-jobs GET "$jobs?pageSize=500"; else call "left-$kind" GET "v2/projects/$project/locations/-/$kind"; fi
    if last | grep -q "rk-certify-"; then say "LEFT: $kind of this run are still there; see $out/left-$kind.txt and delete them"; code=1; fi
  done
  rm -f "$out/.last" "$out/wait.txt"
  exit "$code"
}
trap finish EXIT

spot="{\"acceleratorType\":\"$accelerator\",\"runtimeVersion\":\"$runtime\",\"schedulingConfig\":{\"spot\":true}}"
create() { call "$1" POST "v2/$parent/nodes?nodeId=$node" "$spot"; }

# Says what an answer recorded under a name has of these fields.
fields() { local file="$1"; shift; for field in "$@"; do sed -nE "s/.*\"($field)\": *(\"([^\"\\]|\\\\.)*\"|[0-9]+|true|false).*/\1 \2/p" "$out/$file.txt" | head -n 3; done | paste -sd ';' -; }

# The name of a deleted task: taken first, tried again at the end.
if [[ $is_cloud = 1 || -n "$platform" ]]; then
  queue="projects/$project/locations/$region/queues/rk-certify-$stamp"
  at cloudtasks queue-create POST "v2/projects/$project/locations/$region/queues" "{\"name\":\"$queue\",\"state\":\"PAUSED\"}"
  task="{\"task\":{\"name\":\"$queue/tasks/once\",\"httpRequest\":{\"url\":\"https://example.com/\"}}}"
  at cloudtasks task-create POST "v2/$queue/tasks" "$task"
  at cloudtasks task-delete DELETE "v2/$queue/tasks/once"
  named=$SECONDS
  at cloudtasks task-again-at-once POST "v2/$queue/tasks" "$task"
  say "task-names: $status at once after the delete"
fi

call wrong-runtime POST "v2/$parent/nodes?nodeId=$node" "${spot/$runtime/no-such-runtime}"
say "runtime-version: $status $(fields wrong-runtime message)"

create create-first
operation="$(field name)"
say "metadata-type: create $status, metadata of type $(field @type)"
call delete-while-creating DELETE "v2/$parent/nodes/$node"
say "name-again: delete while it is made: $status"
if until_node gone 900; then say "name-again: gone $took s after the delete"; else say "name-again: not gone in 15 minutes"; fi
call operation-of-deleted GET "v2/$operation"
say "operation-details: of a create whose node was deleted: $status $(fields operation-of-deleted done code message)"

began=$SECONDS
for _ in $(seq 1 60); do
  create create-again
  [[ $status = 200 ]] && break
  sleep "$pause"
done
say "name-again: $status after $((SECONDS - began)) s"

operation="$(field name)"
if until_node READY 900; then
  call node-ready GET "v2/$parent/nodes/$node"
  say "operation-details: READY after $took s"
else
  say "operation-details: no READY"
fi
call operation-of-create GET "v2/$operation"
say "operation-details: $status $(fields operation-of-create done code message)"
call delete-ready DELETE "v2/$parent/nodes/$node"
until_node gone 900 && say "name-again: gone $took s after the delete of a READY node"

call request-create POST "v2/$parent/queuedResources?queuedResourceId=$request" \
  "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"$parent\",\"nodeId\":\"$node\",\"node\":{\"acceleratorType\":\"$accelerator\",\"runtimeVersion\":\"$runtime\"}}]},\"spot\":{}}"
began=$SECONDS
while ((SECONDS - began < 600)); do
  call request-state GET "v2/$parent/queuedResources/$request"
  state="$(field state)"
  [[ "$state" = ACTIVE || "$state" = FAILED || "$state" = SUSPENDED ]] && break
  sleep "$pause"
done
say "request-without-force: ${state:-not told} after $((SECONDS - began)) s"
call request-delete-without-force DELETE "v2/$parent/queuedResources/$request"
say "request-without-force: $status while ${state:-not told}"
call request-delete-with-force DELETE "v2/$parent/queuedResources/$request?force=true"
say "request-without-force: with force $status"

# Creates that cannot succeed cost nothing.
for count in $(seq 1 120); do
  call rate POST "v2/$parent/nodes?nodeId=$node-rate" "${spot/$runtime/no-such-runtime}"
  if [[ $status = 429 ]]; then break; fi
done
say "creates-a-minute: $status after $count in a row"

# entries NAME FILTER FRESHNESS: what Cloud Logging has of it, newest first.
entries() {
  at logging "$1" POST v2/entries:list "{\"resourceNames\":[\"projects/$project\"],\"filter\":\"${2//\"/\\\"} AND timestamp>=\\\"$(date -u -d "-$3" +%FT%TZ)\\\"\",\"orderBy\":\"timestamp desc\",\"pageSize\":20}"
}
# skus NAME SERVICE_ID WORDS: the prices of a service whose description has these words.
skus() {
  local page="" found=""
  while :; do
    at cloudbilling "$1" GET "v1/services/$2/skus?pageSize=5000&pageToken=$page"
    found+="$(last | tr -d '\n' | sed 's/"name": *"services/\n&/g' | grep -iE "\"description\": *\"[^\"]*($3)" || true)"$'\n'
    page="$(field nextPageToken)"
    [[ -n "$page" && $status = 200 ]] || break
  done
  printf '%s' "$found" | redact >"$out/$1.txt"
  printf '%s' "$found" | sed -nE 's/.*"description": *"([^"]*)".*/\1/p' | sort -u | head -n 5 | paste -sd ';' -
}
if [[ $is_cloud = 1 || -n "$platform" ]]; then
  entries preempted-entry 'protoPayload.methodName="compute.instances.preempted" AND protoPayload.resourceName:"/instances/t1v-n-"' 30days
  say "preempted-entry: $status $(fields preempted-entry resourceName)"
  entries audit "protoPayload.serviceName=\"tpu.googleapis.com\" AND protoPayload.resourceName:\"$node\"" 1hour
  say "audit-delay: $status $(fields audit timestamp receiveTimestamp)"
  # Services in mode platform say once what kind of token comes.
  entries token-signatures 'resource.type="cloud_run_revision" AND jsonPayload.message:"identity tokens come"' 7days
  say "token-signatures: $status $(fields token-signatures message)"
  # v2 to v4, and what is billed as Compute Engine.
  say "ironwood-price: $(skus ironwood-price 6F81-5844-456A 'ironwood|tpu ?7x|tpu-?v7') $(skus ironwood-tpu E000-3F24-B8AA 'ironwood|tpu ?7x|tpu-?v7')"
  at cloudbilling services GET 'v1/services?pageSize=5000'
  firestore="$(last | tr -d '\n' | sed 's/"name": *"services/\n&/g' | sed -nE 's/.*"serviceId": *"([^"]*)".*"displayName": *"Cloud Firestore".*/\1/p' | head -n 1)"
  say "delete-price: $(skus delete-price "${firestore:-not-told}" 'delete')"
  service='{"template":{"containers":[{"image":"us-docker.pkg.dev/cloudrun/container/hello"}]}}'
  services="v2/projects/$project/locations/$region/services?serviceId=rk-certify&validateOnly=true"
  at run run-timeout-usual POST "$services" "$service"
  say "run-timeout: usual $status $(fields run-timeout-usual timeout)"
  at run run-timeout-too-long POST "$services" "${service/\{\"containers/{\"timeout\":\"3601s\",\"containers}"
  say "run-timeout: an hour and a second: $status $(fields run-timeout-too-long message)"
  jobs="v1/projects/$project/locations/$region/jobs"
  # Known before it is made: its answer may be lost.
  job="$jobs/rk-certify-$stamp"
  at cloudscheduler attempt-deadline POST "$jobs" "{\"name\":\"${job#v1/}\",\"schedule\":\"0 0 29 2 *\",\"httpTarget\":{\"uri\":\"https://example.com/\"}}"
  say "attempt-deadline: $status $(fields attempt-deadline attemptDeadline)"
  at cloudtasks task-again POST "v2/$queue/tasks" "$task"
  say "task-names: $status $((SECONDS - named)) s after the delete"
fi
say "answers are in $out"
