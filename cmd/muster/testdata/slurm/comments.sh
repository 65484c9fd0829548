#!/bin/bash -l
#SBATCH --job-name="resnet50 train"        # job name
#SBATCH --partition=gpu                    # partition
#SBATCH --gres=gpu:h100:2                  # 2 H100
#SBATCH --cpus-per-task=8                  # cores
#SBATCH --mem=32G                          # memory
#SBATCH --time=1-00:00:00                  # one day
#SBATCH --output=logs/%x-%j.out
#SBATCH --mail-type=BEGIN,END,FAIL         # notifications
#SBATCH --mail-user=ada@uni.example
module purge
module load cuda/12.1
source ~/venv/bin/activate
srun python train.py
