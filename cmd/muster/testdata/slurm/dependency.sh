#!/bin/bash
#SBATCH --time=5
#SBATCH --dependency=afterok:1268
./merge
