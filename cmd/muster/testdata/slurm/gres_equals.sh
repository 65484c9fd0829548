#!/bin/bash
#SBATCH --gres gpu=2
#SBATCH -t 90
hostname
