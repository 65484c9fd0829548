#!/bin/bash
#SBATCH --timee=10:00
#SBATCH --cpu-per-task=4
#SBATCH --profile=all
export LOG=$(squeue --me) && srun -n 2 ./step
for i in 1 2; do srun ./more; done
echo "srun is not started here" # nor srun here
