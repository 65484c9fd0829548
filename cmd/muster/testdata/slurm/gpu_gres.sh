#!/bin/bash
#SBATCH --gres=gpu:a100:2
#SBATCH -c 16
#SBATCH --mem=64000
#SBATCH --time=2-12:00:00
#SBATCH -p gpu
#SBATCH --qos=high
#SBATCH -A vision
srun python train.py
