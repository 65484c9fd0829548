#!/bin/bash
#SBATCH -J solve
#SBATCH -L matlab:1
matlab -batch solve
