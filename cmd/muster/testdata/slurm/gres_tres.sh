#!/bin/bash
#SBATCH --gres=gres/gpu:h100:1
hostname
