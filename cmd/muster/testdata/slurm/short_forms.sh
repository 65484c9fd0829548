#!/usr/bin/env bash
#SBATCH --mail-type ALL
#SBATCH --mail-user "ada@uni.example,bob@uni.example"
#SBATCH -J test -p short -c4 --mem 8g -t 00:10:00 # several
#SBATCH --nodes=1-1
#SBATCH --tasks-per-node=4
#SBATCH --ntasks-per-node 4
hostname
