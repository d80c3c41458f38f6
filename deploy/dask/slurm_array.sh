#!/bin/bash
# Parts without Dask: an array whose tasks each read their own share of a folder that all nodes have.
#
#   sbatch --export=ALL,INCIDENT=/shared/incident,PARTS=/shared/parts deploy/dask/slurm_array.sh
#   gpufleet triage /shared/parts/*.part
#
#SBATCH --job-name=gpufleet-summarise
#SBATCH --array=0-63
#SBATCH --cpus-per-task=2
#SBATCH --mem=6G
#SBATCH --time=00:30:00
set -euo pipefail
mkdir -p "$PARTS"
gpufleet summarise "$INCIDENT" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --to "$PARTS/$SLURM_ARRAY_TASK_ID.part"
