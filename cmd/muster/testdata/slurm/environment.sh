#!/bin/bash
#SBATCH --export=ALL,MODEL=small,NOBODY_SETS_THIS
#SBATCH --nice=100
#SBATCH --constraint=rack=r1
#SBATCH --nodelist=n1,n2 --exclude=n3
#SBATCH --comment="weekly run" # for the accounting
#SBATCH --mem=0
./run
