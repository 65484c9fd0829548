#!/bin/bash
#SBATCH --job-name=t
#SBATCH --time=one-hour
./run
