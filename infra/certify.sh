#!/usr/bin/env bash
# Asks a real project what nobody has written down about the Cloud TPU API and the platform around it, and records the answers,
# redacted, so that the emulator can be corrected with them. Under 30 minutes and 2 dollars: one spot v5litepod-4 at a time, each part of
# the script with its own share of the time, and what there is no time for is told as "not asked: out of time".
#
#   PROJECT=my-project ZONE=us-west4-a REGION=us-central1 infra/certify.sh OUT_FOLDER
#
# NETWORK and SUBNETWORK name where its nodes stand, without external addresses, such as `rekindle` for both after an apply; else it is the
# network `default` of the project, which not every project has.
# TPU_API names another endpoint, such as the emulator's, and PLATFORM_API another one for all other services; the others are asked
# only in the cloud, or where PLATFORM_API is set. Needs curl, gcloud for the token, and GNU's date, timeout, paste and xargs (Linux has them).
# For a minute it takes all creates that the project may ask for: a live installation's own are refused then, and come again later.
# Everything that it makes begins with `rk-certify-` and is deleted at the end, however it ends.
#
# What is asked, by the names under which the lines of summary.txt tell of it:
#   TPU API   request-without-force  delete of a queued resource without force while ACTIVE
#             runtime-version        the words for a runtime version that there is not
#             preempted-entry        the entry that a preempted VM of a TPU leaves
#             name-again             when a name may be used again, from the end of the delete's operation and from the 404; whether a
#                                    delete is refused while a node is made
#             creates-a-minute       the refusal above the creates of a minute
#             operation-details      what the operation of a create says in the end, its error's details too
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
wrong_runtime="${WRONG_RUNTIME:-no-such-runtime}"
network="${NETWORK:-}"
subnetwork="${SUBNETWORK:-$network}"
# Between two looks, in seconds; the emulator is faster than the cloud.
pause="${PAUSE:-5}"
# Seconds for all questions together, and for cleaning up after them. Half an hour holds both, with a minute for gcloud's token.
limit="${LIMIT:-1440}"
cleaning=300
parent="projects/$project/locations/$zone"
own="rk-certify-$(date +%s)"
node="$own-a"
queued_node="$own-b"
rate_node="$own-r"
wrong_node="$own-w"
request="$own-q"
region="${REGION:-us-central1}"
platform="${PLATFORM_API:-}"
asks_platform=0
if [[ "$api" == https://*.googleapis.com || -n "$platform" ]]; then asks_platform=1; fi
# Before anything is made: without them answers would be lost half-way.
for program in curl timeout paste xargs; do
  command -v "$program" >/dev/null || { echo "error: $program is needed" >&2; exit 1; }
done
date -u -d -1hour +%s >/dev/null 2>&1 || { echo "error: GNU date is needed, which knows -d" >&2; exit 1; }
mkdir -p "$out"

headers=(-H 'Content-Type: application/json')
if [[ "$api" == https://*.googleapis.com ]]; then headers+=(-H "Authorization: Bearer $(timeout 60 gcloud auth print-access-token)"); fi

# Nothing of the project is kept: its id and number, addresses, accounts, tokens.
# No text of any answer until the number is known.
number=no-number-yet
redact() {
  local hex='[0-9A-Fa-f]{1,4}'
  sed -E -e "s/$project/PROJECT/g" -e "s/\\b$number\\b/NUMBER/g" -e 's/(projects\/|project_number:|service-)[0-9]+/\1NUMBER/g' \
    -e 's/[0-9]{1,3}(\.[0-9]{1,3}){3}/ADDRESS/g' -e "s/\\b($hex:){4,7}$hex\\b|\\b($hex:)*$hex::($hex(:$hex)*)?/ADDRESS/g" \
    -e 's/[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+/ACCOUNT/g'
}

# Nothing is asked and nothing waits after this second of the script.
deadline=$limit
is_time() { ((SECONDS < deadline)); }
status=000
# call NAME METHOD PATH [BODY]: records status and body under NAME, leaves the status in $status.
call() { ask "$1" "$2" "$api" "${@:3}"; }
# at SERVICE NAME METHOD PATH [BODY]: the same of another service of Google's.
at() { ask "$2" "$3" "${platform:-https://$1.googleapis.com}" "${@:4}"; }
ask() {
  local body left=$((deadline - SECONDS))
  if ((left <= 0)); then status="not asked: out of time"; : >"$out/.last"; return 0; fi
  # No answer is an answer too: 000.
  body="$(curl -sS --connect-timeout 5 --max-time $((left < 20 ? left : 20)) -o - -w '\n%{http_code}' -X "$2" "${headers[@]}" ${5:+--data "$5"} "$3/$4")" || true
  status="${body##*$'\n'}"
  body="${body%$'\n'*}"
  { printf '%s %s\n%s\n' "$2" "$4" "$status"; printf '%s\n' "$body"; } | redact >"$out/$1.txt"
  printf '%s' "$body" >"$out/.last"
}
last() { cat "$out/.last"; }
# The first value of a field of the last answer.
field() { sed -nE "s/.*\"$1\": *\"([^\"]*)\".*/\1/p" "$out/.last" | head -n 1; }
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt" >&2; }
# Says what an answer recorded under a name has of these fields, and of its error's details.
fields() { local file="$1"; shift; for field in "$@"; do sed -nE "s/.*\"($field)\": *(\"([^\"\\]|\\\\.)*\"|[0-9]+|true|false).*/\1 \2/p" "$out/$file.txt" | head -n 3; done | paste -sd ';' -; }
details() { local found; found="$(tail -n +3 "$out/$1.txt" | tr -d '\n' | sed -nE 's/.*"details": *(\[.*\]).*/\1/p')"; printf 'details %s' "${found:-none}"; }

# How long things of the TPU API take to end, in seconds from the call: the operation, and the resource itself.
operation_end="" resource_end=""
look_for_end() {
  local took=$((SECONDS - $1)) operation="$2" resource="$3"
  if [[ -n "$operation" && -z "$operation_end" ]]; then
    call wait GET "v2/$operation"
    if last | grep -qE '"done": *true'; then operation_end="after $took s"; fi
  fi
  if [[ -z "$resource_end" ]]; then
    call wait GET "v2/$resource"
    if [[ $status = 404 ]]; then resource_end="after $took s"; fi
  fi
}
ends() { printf 'operation done %s, 404 %s' "${operation_end:-not seen}" "${resource_end:-not seen}"; }

is_late=0
# section FUNCTION SECONDS: asks some of the questions, in no more time than that.
section() {
  deadline=$((SECONDS + $2 < limit ? SECONDS + $2 : limit))
  if is_time; then "$1"; fi
  # The rest of a section whose time is over was not asked.
  if ! is_time; then is_late=1; fi
}

questions=(request-without-force runtime-version name-again creates-a-minute operation-details metadata-type)
if [[ $asks_platform = 1 ]]; then
  questions+=(preempted-entry ironwood-price audit-delay token-signatures delete-price task-names run-timeout attempt-deadline)
fi

# left FILE WHAT: whether a list still names something of this run or an earlier one.
left() {
  if grep -q 'rk-certify-' "$out/$1.txt"; then
    say "LEFT: $2 named rk-certify-* are still there; see $1.txt and delete them"
    code=1
  elif [[ "$(sed -n 2p "$out/$1.txt")" != 200 ]]; then
    say "LEFT: whether $2 named rk-certify-* are still there could not be asked; see $1.txt, look by hand"
    code=1
  fi
}
finish() {
  code=$?
  trap '' INT TERM HUP
  set +e
  for question in "${questions[@]}"; do
    if ! grep -q "^$question: " "$out/summary.txt"; then
      if [[ $is_late = 1 ]]; then say "$question: not asked: out of time"; else say "$question: not asked: what it needs was refused, or the script ended before it"; fi
    fi
  done
  deadline=$((SECONDS + cleaning))
  call end-request DELETE "v2/$parent/queuedResources/$request?force=true"
  for name in "$node" "$queued_node" "$rate_node" "$wrong_node"; do call "end-$name" DELETE "v2/$parent/nodes/$name"; done
  if [[ -n "${queue:-}" ]]; then at cloudtasks end-queue DELETE "v2/$queue"; fi
  if [[ -n "${job:-}" ]]; then at cloudscheduler end-job DELETE "$job"; fi
  # The last minute is for telling what is left.
  while ((SECONDS < deadline - 60)); do
    call left-nodes GET "v2/projects/$project/locations/-/nodes"
    call left-queuedResources GET "v2/projects/$project/locations/-/queuedResources"
    grep -q "$own" "$out/left-nodes.txt" "$out/left-queuedResources.txt" || break
    # A delete that was refused while a node was made is asked again.
    for name in "$node" "$queued_node" "$rate_node" "$wrong_node"; do call "end-$name" DELETE "v2/$parent/nodes/$name"; done
    call end-request DELETE "v2/$parent/queuedResources/$request?force=true"
    sleep "$pause"
  done
  left left-nodes "nodes"
  left left-queuedResources "queued resources"
  if [[ -n "${job:-}" ]]; then at cloudscheduler left-jobs GET "$jobs?pageSize=500"; left left-jobs "jobs of Scheduler"; fi
  if [[ -n "${queue:-}" ]]; then at cloudtasks left-queues GET "v2/${queue%/*}?pageSize=500"; left left-queues "queues"; fi
  rm -f "$out"/.last "$out"/.rate-* "$out/wait.txt"
  # The number may have been learnt late.
  for file in "$out"/*.txt; do redact <"$file" >"$out/.redacted" && mv "$out/.redacted" "$file"; done
  printf 'answers are in %s, after %s s\n' "$out" "$SECONDS" >&2
  exit "$code"
}
: >"$out/summary.txt"
trap finish EXIT
trap 'exit 130' INT TERM HUP

node_body="\"acceleratorType\":\"$accelerator\",\"runtimeVersion\":\"$runtime\""
if [[ -n "$network" ]]; then
  node_body+=",\"networkConfig\":{\"network\":\"$network\",\"subnetwork\":\"$subnetwork\",\"enableExternalIps\":false}"
fi
spot="{$node_body,\"schedulingConfig\":{\"spot\":true}}"

# entries NAME FILTER FRESHNESS: what Cloud Logging has of it, newest first.
entries() {
  at logging "$1" POST v2/entries:list "{\"resourceNames\":[\"projects/$project\"],\"filter\":\"${2//\"/\\\"} AND timestamp>=\\\"$(date -u -d "-$3" +%FT%TZ)\\\"\",\"orderBy\":\"timestamp desc\",\"pageSize\":20}"
}
# said NAME FIELD NEED: what a look into old entries has found, or what it takes for there to be something.
said() {
  local found
  found="$(fields "$1" "$2")"
  if [[ $status = 200 && -z "$found" ]]; then found="nothing found: it $3"; fi
  say "$1: $status $found"
}
# skus NAME SERVICE_ID WORDS: the prices of a service whose description has these words.
skus() {
  local page="" found="" count
  for count in {1..10}; do
    at cloudbilling "$1" GET "v1/services/$2/skus?pageSize=5000&pageToken=$page"
    found+="$(last | tr -d '\n' | sed 's/"name": *"services/\n&/g' | grep -iE "\"description\": *\"[^\"]*($3)" || true)"$'\n'
    page="$(field nextPageToken)"
    [[ -n "$page" && $status = 200 ]] || break
  done
  printf '%s' "$found" | redact >"$out/$1.txt"
  found="$(printf '%s' "$found" | sed -nE 's/.*"description": *"([^"]*)".*/\1/p' | sort -u | head -n 5 | paste -sd ';' -)"
  printf '%s%s' "$found" "${page:+ (of the first $count pages)}"
}

# What needs no waiting.
platform_now() {
  at cloudresourcemanager project GET "v1/projects/$project"
  number="$(field projectNumber)"
  number="${number:-no-number-yet}"
  # The name of a deleted task: taken first, tried again at the end.
  queue="projects/$project/locations/$region/queues/$own"
  at cloudtasks queue-create POST "v2/projects/$project/locations/$region/queues" "{\"name\":\"$queue\",\"state\":\"PAUSED\"}"
  task="{\"task\":{\"name\":\"$queue/tasks/once\",\"httpRequest\":{\"url\":\"https://example.com/\"}}}"
  at cloudtasks task-create POST "v2/$queue/tasks" "$task"
  at cloudtasks task-delete DELETE "v2/$queue/tasks/once"
  named=$SECONDS
  at cloudtasks task-again-at-once POST "v2/$queue/tasks" "$task"
  say "task-names: $status at once after the delete"
  entries preempted-entry 'protoPayload.methodName="compute.instances.preempted" AND protoPayload.resourceName:"/instances/t1v-n-"' 30days
  said preempted-entry resourceName "needs a preemption of a TPU in the last 30 days: ask again after one"
  # Services in mode platform say once what kind of token comes.
  entries token-signatures 'resource.type="cloud_run_revision" AND jsonPayload.message:"identity tokens come"' 7days
  said token-signatures message "needs a deployed Rekindle that was called in the last 7 days: ask again after an apply"
  service='{"template":{"containers":[{"image":"us-docker.pkg.dev/cloudrun/container/hello"}]}}'
  services="v2/projects/$project/locations/$region/services?serviceId=rk-certify&validateOnly=true"
  at run run-timeout-usual POST "$services" "$service"
  say "run-timeout: usual $status $(fields run-timeout-usual timeout)"
  at run run-timeout-too-long POST "$services" "${service/\{\"containers/{\"timeout\":\"3601s\",\"containers}"
  say "run-timeout: an hour and a second: $status $(fields run-timeout-too-long message)"
  jobs="v1/projects/$project/locations/$region/jobs"
  # Known before it is made: its answer may be lost.
  job="$jobs/$own"
  at cloudscheduler attempt-deadline POST "$jobs" "{\"name\":\"${job#v1/}\",\"schedule\":\"0 0 29 2 *\",\"httpTarget\":{\"uri\":\"https://example.com/\"}}"
  say "attempt-deadline: $status $(fields attempt-deadline attemptDeadline)"
}

prices() {
  at cloudbilling services GET 'v1/services?pageSize=5000'
  firestore="$(last | tr -d '\n' | sed 's/"name": *"services/\n&/g' | sed -nE 's/.*"serviceId": *"([^"]*)".*"displayName": *"Cloud Firestore".*/\1/p' | head -n 1)"
  say "delete-price: $(skus delete-price "${firestore:-not-told}" 'delete')"
  # v2 to v4, and what is billed as Compute Engine.
  say "ironwood-price: $(skus ironwood-price 6F81-5844-456A 'ironwood|tpu ?7x|tpu-?v7') $(skus ironwood-tpu E000-3F24-B8AA 'ironwood|tpu ?7x|tpu-?v7')"
}

# A runtime version that there is not is refused at once, or by the create's operation. Under a name of its own: the next create shall not meet it.
runtime_version() {
  local operation ended=""
  call wrong-runtime POST "v2/$parent/nodes?nodeId=$wrong_node" "${spot/$runtime/$wrong_runtime}"
  say "runtime-version: $status $(fields wrong-runtime message)"
  if [[ $status != 200 ]]; then return 0; fi
  operation="$(field name)"
  while is_time && [[ -z "$ended" ]]; do
    call wrong-runtime-operation GET "v2/$operation"
    if last | grep -qE '"done": *true'; then ended=1; else sleep "$pause"; fi
  done
  say "runtime-version: its operation: ${ended:+done} $(fields wrong-runtime-operation code message) $(details wrong-runtime-operation)"
  call end-wrong-runtime DELETE "v2/$parent/nodes/$wrong_node"
}

# A node is deleted while it is made, and its name used again.
name_again() {
  local created deleted made again=""
  call create-first POST "v2/$parent/nodes?nodeId=$node" "$spot"
  created="$(field name)"
  say "metadata-type: create $status, metadata of type $(field @type)"
  if [[ -z "$created" ]]; then say "name-again: not asked: no node was made, $status $(fields create-first message)"; return 0; fi
  call delete-while-creating DELETE "v2/$parent/nodes/$node"
  say "name-again: delete while it is made: $status"
  while [[ $status != 200 && $status != 404 ]] && is_time; do
    sleep "$pause"
    call delete-first DELETE "v2/$parent/nodes/$node"
  done
  deleted="$(field name)"
  made=$SECONDS
  while is_time; do
    look_for_end "$made" "$deleted" "$parent/nodes/$node"
    if [[ -z "$again" && (-n "$operation_end" || -n "$resource_end") ]]; then
      call create-again POST "v2/$parent/nodes?nodeId=$node" "$spot"
      # From here on the node is there again: a 404 that was not seen yet never will be.
      if [[ $status = 200 ]]; then again="after $((SECONDS - made)) s" resource_end="${resource_end:-not seen}"; fi
    fi
    if [[ -n "$again" && (-z "$deleted" || -n "$operation_end") ]]; then break; fi
    sleep "$pause"
  done
  say "name-again: delete: $(ends); the name may be used ${again:-not yet}"
  is_time || return 0
  call operation-of-deleted GET "v2/$created"
  say "operation-details: of a create whose node was deleted: $status $(fields operation-of-deleted done code message) $(details operation-of-deleted)"
  # Gone by the time that the end looks for it.
  call delete-again DELETE "v2/$parent/nodes/$node"
}

# A queued resource and its node: until it is READY, and until both are gone.
queued() {
  local began=$SECONDS state="" deleted
  call request-create POST "v2/$parent/queuedResources?queuedResourceId=$request" \
    "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"$parent\",\"nodeId\":\"$queued_node\",\"node\":{$node_body}}]},\"spot\":{}}"
  if [[ $status != 200 ]]; then
    say "request-without-force: not asked: no queued resource was made, $status $(fields request-create message)"
    return 0
  fi
  while is_time; do
    call request-state GET "v2/$parent/queuedResources/$request"
    state="$(field state)"
    if [[ "$state" = ACTIVE || "$state" = FAILED || "$state" = SUSPENDED ]]; then break; fi
    sleep "$pause"
  done
  is_time || return 0
  say "request-without-force: ${state:-not told} after $((SECONDS - began)) s"
  call node-ready GET "v2/$parent/nodes/$queued_node"
  say "operation-details: its node is $(field state), $status"
  call request-delete-without-force DELETE "v2/$parent/queuedResources/$request"
  say "request-without-force: $status while ${state:-not told} $(fields request-delete-without-force message)"
  began=$SECONDS operation_end="" resource_end=""
  call request-delete-with-force DELETE "v2/$parent/queuedResources/$request?force=true"
  say "request-without-force: with force $status"
  deleted="$(field name)"
  while is_time; do
    look_for_end "$began" "$deleted" "$parent/nodes/$queued_node"
    if [[ (-z "$deleted" || -n "$operation_end") && -n "$resource_end" ]]; then break; fi
    sleep "$pause"
  done
  say "name-again: delete of a queued resource with a READY node: $(ends)"
}

# Creates that cannot succeed cost nothing. So many at once that a minute's limit is reached well within a minute.
creates_a_minute() {
  local codes refused
  codes="$(seq 1 150 | timeout $((deadline - SECONDS)) xargs -P 16 -I{} curl -sS --connect-timeout 5 --max-time 20 -o "$out/.rate-{}" -w '%{http_code} {}\n' \
    -X POST "${headers[@]}" --data "${spot/$runtime/no-such-runtime}" "$api/v2/$parent/nodes?nodeId=$rate_node" 2>/dev/null)" || true
  refused="$(sed -n 's/^429 //p' <<<"$codes" | head -n 1)"
  { printf 'POST v2/%s/nodes\n%s\n' "$parent" "${refused:+429}"; cat "$out/.rate-${refused:-1}"; } 2>/dev/null | redact >"$out/rate.txt" || true
  say "creates-a-minute: of $(grep -c . <<<"$codes") $(sed -E 's/ .*//' <<<"$codes" | sort | uniq -c | sed -E 's/ *([0-9]+) (.*)/\1 were answered \2/' | paste -sd ';' -) $(fields rate message) $(details rate)"
}

platform_later() {
  entries audit "protoPayload.serviceName=\"tpu.googleapis.com\" AND protoPayload.resourceName:\"$own\"" 1hour
  say "audit-delay: $status $(fields audit timestamp receiveTimestamp)"
  at cloudtasks task-again POST "v2/$queue/tasks" "$task"
  if [[ $status = 409 ]]; then
    say "task-names: 409 still, so for more than $(((SECONDS - named) / 60)) minutes after the delete"
  else
    say "task-names: $status $((SECONDS - named)) s after the delete"
  fi
}

# With the cleaning and the minute for the token at most half an hour: a test adds them up.
if [[ $asks_platform = 1 ]]; then section platform_now 90; section prices 90; fi
section runtime_version 60
section name_again 420
section queued 660
section creates_a_minute 60
if [[ $asks_platform = 1 ]]; then section platform_later 60; fi
