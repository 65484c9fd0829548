#!/bin/bash
#SBATCH --gres=gpu:a100:1,gpu:h100:1
id
