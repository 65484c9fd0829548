#!/bin/bash
#SBATCH --job-name=rel
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --no-requeue
./run
