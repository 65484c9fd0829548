#!/bin/bash
#SBATCH --gres=gpu:h100
hostname
