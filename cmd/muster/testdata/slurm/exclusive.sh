#!/bin/bash
#SBATCH --exclusive
./benchmark
