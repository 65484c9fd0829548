#!/bin/bash
#SBATCH --gres=gpu:h100=2
hostname
