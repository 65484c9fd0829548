#!/bin/bash
#SBATCH --time=5
#SBATCH --dependency=afterok:123:456
./merge
