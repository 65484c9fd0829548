#!/bin/bash
#SBATCH --gres=gpu:1,tmpspace:10G
hostname
