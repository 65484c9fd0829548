#!/bin/bash
# A script of Slurm, unchanged.
# Run it with: muster submit slurm.sh
#SBATCH --job-name=slurm
#SBATCH --array=0-1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=1
#SBATCH --mem=256
#SBATCH --time=10
#SBATCH --output=slurm-%A_%a.out

echo "job $SLURM_JOB_ID, index $SLURM_ARRAY_TASK_ID, $SLURM_CPUS_PER_TASK cpu, GPU $CUDA_VISIBLE_DEVICES"
