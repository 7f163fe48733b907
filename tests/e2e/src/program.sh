# Runs a program for a test and writes down its start, its SIGTERM and its end: program.sh LEDGER COMMAND...
#
# As long as any process of a start lives, it holds a lock of its own; every other start of the job that sees the lock of
# another attempt held writes an overlap down. The lock is inherited, so grandchildren in sessions of their own count.
export LC_ALL=C
ledger=$1
shift
attempt=$REKINDLE_ATTEMPT
me=$attempt-$REKINDLE_SLICE-$REKINDLE_WORKER
line() { printf '%s %s %s %s\n' "$me" "$EPOCHREALTIME" "$1" "${2:-}" >>"$ledger/record"; }

exec 9>>"$ledger/lock-$me"
flock -x -n 9 || { line overlap "the same start again"; exit 97; }
for other in "$ledger"/lock-*; do
  case $other in "$ledger/lock-$attempt-"*) continue ;; esac
  flock -s -n "$other" true || line overlap "${other##*/}"
done
line start "generation=$REKINDLE_GENERATION resume=$REKINDLE_RESUME stage=$REKINDLE_STAGE line=$REKINDLE_LINE"

trap 'signalled=1; line term' TERM
"$@" &
child=$!
code=127
while :; do
  signalled=
  wait "$child"
  last=$?
  # Interrupted waits give 128 and more, or less than 0; a wait after the last one gives 127.
  [ "$last" = 127 ] || code=$last
  [ -z "$signalled" ] && [ "$last" -ge 0 ] && break
done
line stop "$code"
exit "$code"
