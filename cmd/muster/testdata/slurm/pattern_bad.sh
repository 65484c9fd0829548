#!/bin/bash
#SBATCH --array=1-20
#SBATCH -o /logs/%b.out
./run
