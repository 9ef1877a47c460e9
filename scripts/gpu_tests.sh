#!/usr/bin/env bash
# On a machine with a GPU: builds the kernels, runs every test that needs one, then small models under
# compute-sanitizer. Usage: gpu_tests.sh [python]
set -euo pipefail

cd "$(dirname "$0")/.."
python=${1:-python3}
export PYTHONPATH=$PWD OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$python" -c 'import torch; print("torch", torch.__version__)'
"$python" -m dsv4_trt.cli plugins build

echo "=== tests"
"$python" -m pytest -m gpu -q -ra -n "${WORKERS:-6}" -p no:cacheprovider -p no:benchmark tests

echo "=== compute-sanitizer, kernels of whole tiny models"
small='test_every_node_equals_its_reference and tiny'
compute-sanitizer --tool memcheck --error-exitcode 9 --kernel-name-exclude kns=at:: \
    "$python" -m pytest -m gpu -q -p no:cacheprovider -p no:benchmark -k "$small" tests/engine/test_cuda_nodes.py
