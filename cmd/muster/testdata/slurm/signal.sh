#!/bin/bash
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
trap 'touch checkpoint' USR1
./simulate & wait
