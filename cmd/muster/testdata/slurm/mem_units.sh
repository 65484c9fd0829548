#!/bin/bash
#SBATCH --mem=4000MB
#SBATCH -t 0-12
hostname
