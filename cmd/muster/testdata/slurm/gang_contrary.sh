#!/bin/bash
#SBATCH --gpus=8 --gpus-per-node=4
torchrun train.py
