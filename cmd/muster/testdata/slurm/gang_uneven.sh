#!/bin/bash
#SBATCH --nodes=3
#SBATCH --gpus=8
torchrun train.py
