#!/bin/bash
#SBATCH --time=1-0
#SBATCH -t"1:30"
hostname
