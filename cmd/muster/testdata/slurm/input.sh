#!/bin/bash
#SBATCH --input=params.txt
./run
