#!/bin/bash
#SBATCH -N4-2
mpirun ./model
