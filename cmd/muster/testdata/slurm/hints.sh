#!/bin/bash
#SBATCH --reservation=course
#SBATCH --profile=all
#SBATCH --gpu-bind=closest
./run
