#!/bin/bash
#SBATCH --array=1-20
#SBATCH -D /data/ada
#SBATCH -o %N/%8j_%4a.%t.%s.log
#SBATCH -e /dev/null
./run
