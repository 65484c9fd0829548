#!/bin/bash
#SBATCH --time=10
#SBATCH --gres=shard:2
true
