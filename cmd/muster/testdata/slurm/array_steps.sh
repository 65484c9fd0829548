#!/bin/bash
#SBATCH --array=1,3,7,10-30:10
#SBATCH --output=/scratch/%u/slurm-%j.out
#SBATCH --ntasks-per-node=1
#SBATCH --nodes=1
./step
