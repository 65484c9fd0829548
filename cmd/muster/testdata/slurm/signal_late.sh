#!/bin/bash
#SBATCH --time=00:01:00
#SBATCH --signal=USR1@300
./simulate
