#!/bin/bash
#SBATCH --constraint="intel&gpu"
#SBATCH -C skylake|cascade
hostname
