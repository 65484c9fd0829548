#!/bin/bash
#SBATCH -N 2 -n 16
#SBATCH --cpus-per-task=2 --mem-per-cpu=1G
#SBATCH --chdir=/data/ada
#SBATCH --output=run-%j-%t.out
#SBATCH --kill-on-bad-exit=0
mpirun ./model
