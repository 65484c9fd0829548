#!/bin/bash
#SBATCH --job-name=serial
#SBATCH --ntasks=1
#SBATCH --time=01:30:00
#SBATCH --mem=4G
#SBATCH --partition=short
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=ada@example.org

module load python
python analyse.py
