#!/bin/bash
#SBATCH --ntasks=16 --ntasks-per-node=8
#SBATCH --gpus=h100:16
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-gpu=12 --mem-per-gpu=100G
srun ./train
