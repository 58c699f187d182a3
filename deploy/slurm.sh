#!/usr/bin/env bash
# A run on a Slurm allocation: one Ray node a Slurm node, one replica a graphics card.
# UNTESTED: no Slurm was at hand. It follows Ray's documentation of `ray start`.
# Copy it, mend the lines marked <-, and submit it where the study's folder is: sbatch slurm.sh
#SBATCH --job-name=pemand
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=08:00:00
set -euo pipefail

source "$HOME/pemand/bin/activate"                # <- the same environment on all nodes
SCENARIO=scenarios/baseline.yaml                  # <-
MODEL=vllm:models/my-model                        # <- a folder that all nodes see
CARDS=4                                           # <- as --gpus-per-node
PORT=$((20000 + SLURM_JOB_ID % 20000))

# One token for all nodes of the job: without it whoever reaches the port can run programs.
umask 077
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/.ray-token-$SLURM_JOB_ID" RAY_USAGE_STATS_ENABLED=0
python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
IP=$(srun --nodes=1 --ntasks=1 -w "$HEAD" hostname --ip-address | awk '{print $1}')
srun --nodes=1 --ntasks=1 -w "$HEAD" --overlap \
  ray start --head --node-ip-address="$IP" --port="$PORT" --include-dashboard=false --block &
sleep 30
if [ "$SLURM_NNODES" -gt 1 ]; then
  srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) -x "$HEAD" --overlap \
    ray start --address="$IP:$PORT" --block &
  sleep 30
fi

# --remote allow: the other nodes of the allocation are other machines. Where the job ends at its
# time limit, submit it again: the journal in the run's folder goes on.
srun --nodes=1 --ntasks=1 -w "$HEAD" --overlap \
  pemand run "$SCENARIO" --model "$MODEL" --replicas $((SLURM_NNODES * CARDS)) \
  --cluster "$IP:$PORT" --remote allow
