#!/bin/bash
#SBATCH --array=0-7%2
#SBATCH --nodes=2-4
#SBATCH --gres=gpu:4
#SBATCH --kill-on-bad-exit
torchrun train.py
