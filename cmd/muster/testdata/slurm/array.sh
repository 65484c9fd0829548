#!/bin/bash
#SBATCH -J sweep
#SBATCH --array=0-99%8
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=2G
#SBATCH -t 30
#SBATCH --chdir=/data/sweep
#SBATCH --output=logs/%x_%A_%a.out
#SBATCH --error=logs/%x_%A_%a.err

python train.py --seed "$SLURM_ARRAY_TASK_ID"
echo "seed ${SLURM_ARRAY_TASK_ID} is done"
