#!/bin/bash
# A comment before the options.

#SBATCH -H
#SBATCH -t 90:30
##SBATCH --gres=gpu:8
echo start
#SBATCH --mem=1T
