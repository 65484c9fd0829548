#!/bin/sh
# One task for each line of a file, at most two at once.
# Run it with: muster submit --each-line sweep.txt sweep.sh
#MUSTER --name sweep --array %2 --gpus 1

# shellcheck disable=SC2086 # the line holds several words
set -- $MUSTER_ENTRY
echo "task $MUSTER_TASK: learning rate $1, batch size $2"
