#!/bin/bash
#SBATCH --deadline=2027-01-01
#SBATCH --reservation=course
#SBATCH --licenses=matlab:1
#SBATCH --profile=all
#SBATCH --wait
./run
