# A program that counts steps until the test lets it go: steps.sh LEDGER
#
# The files `finish` and `exit-WORKER` in the ledger end all workers, or one of them once, with the exit code in the file.
# STAY=1: it does not end at SIGTERM. GRANDCHILD=1: it leaves a process in a session of its own behind.
export LC_ALL=C
ledger=$1
place=${REKINDLE_CHECKPOINT_DIR#file://}
mkdir -p "$place"
step=0
if [ "$REKINDLE_RESUME" = 1 ]; then
  [ -s "$place/step" ] && step=$(<"$place/step")
  echo "resumed_from=$step" >>"$REKINDLE_PROGRESS_FILE"
fi
[ "${GRANDCHILD:-}" = 1 ] && setsid sleep 100000 &
trap 'stop=1' TERM
while :; do
  step=$((step + 1))
  if [ "$REKINDLE_WORKER" = 0 ]; then
    echo "$step" >"$place/step.new" && mv "$place/step.new" "$place/step"
  fi
  echo "step=$step loss=1.5 checkpoint=$step" >>"$REKINDLE_PROGRESS_FILE"
  if [ "$REKINDLE_WORKER" = 0 ] || [ $((step % 20)) = 1 ]; then echo "worker $REKINDLE_WORKER did step $step"; fi
  [ -n "${stop:-}" ] && [ "${STAY:-}" != 1 ] && exit 143
  mine=$ledger/exit-$REKINDLE_WORKER
  if [ -s "$mine" ]; then
    code=$(<"$mine")
    rm "$mine"
    echo "RuntimeError: the test ends worker $REKINDLE_WORKER with $code" >&2
    exit "$code"
  fi
  [ -s "$ledger/finish" ] && exit "$(<"$ledger/finish")"
  sleep 0.05
done
