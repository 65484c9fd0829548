#!/bin/bash
#SBATCH --ntasks=64
#SBATCH --time=1:00:00
mpirun ./model
