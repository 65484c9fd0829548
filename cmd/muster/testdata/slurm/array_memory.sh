#!/bin/bash
#SBATCH --array=1-1000:7%20
#SBATCH --mem-per-cpu=2gb
#SBATCH --output=/dev/null
#SBATCH --error="logs/err_%A-%a.txt"
python run.py --seed $SLURM_ARRAY_TASK_ID --of $SLURM_ARRAY_TASK_COUNT
