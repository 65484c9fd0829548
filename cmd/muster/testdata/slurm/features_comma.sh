#!/bin/bash
#SBATCH --constraint=intel,ib
hostname
