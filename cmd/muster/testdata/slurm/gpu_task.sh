#!/bin/bash
#SBATCH -n1 -N1 --gpus-per-task=H100:1
#SBATCH --gpu-bind=closest
#SBATCH --hint=nomultithread
python infer.py
