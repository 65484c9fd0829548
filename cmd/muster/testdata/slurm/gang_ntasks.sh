#!/bin/bash
#SBATCH --nodes=3 --ntasks=8
mpirun ./model
