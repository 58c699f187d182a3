#!/usr/bin/env bash
# One OpenAI-compatible endpoint in front of vLLM's own replicas on one machine, without Ray.
# UNTESTED: no graphics card was at hand; the options are those of vLLM's documentation.
# Usage: deploy/vllm-endpoint.sh MODEL REPLICAS [CARDS_A_REPLICA]
set -euo pipefail
MODEL=$1 REPLICAS=$2 CARDS=${3:-1}
exec vllm serve "$MODEL" --host 127.0.0.1 --port 8000 --max-model-len 8192 \
  --data-parallel-size "$REPLICAS" --tensor-parallel-size "$CARDS"
