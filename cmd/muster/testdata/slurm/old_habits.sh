#!/bin/bash
#SBATCH --account=phys_2024
#SBATCH --qos=normal
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task 4
#SBATCH --gres=gpu:a100_80gb:1
##SBATCH --mem=100G
# SBATCH --mem=200G
#SBATCH --get-user-env
#SBATCH --export=ALL
#SBATCH --parsable
#SBATCH --verbose
#SBATCH -v
#SBATCH --no-requeue
#SBATCH --open-mode=truncate
echo $SLURM_JOB_NODELIST ${SLURM_CPUS_ON_NODE:-1} $SLURMD_NODENAME $SLURM_GPUS_ON_NODE
