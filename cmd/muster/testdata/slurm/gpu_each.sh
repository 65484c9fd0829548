#!/bin/bash
#SBATCH --gpus=4
#SBATCH --cpus-per-gpu=6
#SBATCH --mem-per-gpu=40G
#SBATCH --time=UNLIMITED
python train.py
