#!/bin/bash
#SBATCH --wait
./run
