#!/bin/bash
#SBATCH --gres=none
id
