#!/bin/bash
#SBATCH --time=12h
hostname
