#!/bin/bash
#SBATCH --dependency=singleton
id
