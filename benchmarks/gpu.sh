#!/usr/bin/env bash
# On a machine with a graphics card, in under ten minutes: train the embedded recipe, and measure
# batched negotiations with a model of Llama 3.1 8B's shape and random weights.
#     pip install -e '.[vllm,train,evaluate]' && bash benchmarks/gpu.sh
# UNTESTED on a card: none was at hand (docs/training.md).
set -euo pipefail
out=${OUT:-outputs/gpu}
mkdir -p "$out"
python -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "no graphics card is seen by torch")'
timeout 240 pemand train sft training/embedded-lora.yaml --out "$out/train" --minutes 3
python benchmarks/random_model.py "$out/random-8b"
timeout 240 python benchmarks/throughput.py --model "vllm:$out/random-8b"
