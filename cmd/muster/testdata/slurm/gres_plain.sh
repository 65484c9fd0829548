#!/bin/bash
#SBATCH --gres=gpu
#SBATCH --time=4-6
nvidia-smi
