#!/bin/sh
# A training run on one GPU that survives preemption, a drain and a lost node.
# Run it with: muster submit train.sh
#MUSTER --name train --gpus 1 --time 4h --signal USR1@2m
#MUSTER --preemptible --retries 3 --checkpoint-exit-code 85

# The state outlives the attempt: use a directory that all nodes have, such as one on a file server.
state=${STATE_DIR:-$HOME}/train-$MUSTER_JOB_ID.step
steps=${STEPS:-20}

step=$(cat "$state" 2>/dev/null || echo 0)
echo "attempt $MUSTER_ATTEMPT on GPU $CUDA_VISIBLE_DEVICES begins with step $step"

# USR1 comes 2 minutes before the time limit, TERM when the task must make room. Both mean: save, and run again later.
trap 'echo "$step" > "$state"; echo "saved step $step"; exit 85' USR1 TERM

while [ "$step" -lt "$steps" ]; do
  sleep 0.1 # one step of your training
  step=$((step + 1))
  echo "$step" > "$state"
  if [ "$step" -eq $((steps / 2)) ] && [ "$MUSTER_ATTEMPT" -eq 1 ]; then
    echo "half way: this attempt ends, and the next one goes on"
    exit 85
  fi
done
rm -f "$state"
echo "done after $step steps"
