#!/usr/bin/env bash
# On a machine with a GPU: builds the kernels, runs every test that needs one, then the tests of each op, and a
# small model node by node, under compute-sanitizer. WORKERS says how many at once. Where TENSORRT_INCLUDE_DIR or
# TENSORRT_ROOT names TensorRT's headers, every op is run as its TensorRT plugin too. Usage: gpu_tests.sh [python]
set -euo pipefail

cd "$(dirname "$0")/.."
# one thread: of several, a process's first product on a CPU is now and then off by 1e-5
export PYTHON=${1:-python3} PYTHONPATH=$PWD OMP_NUM_THREADS=1 WORKERS=${WORKERS:-8}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$PYTHON" -c 'import torch; print("torch", torch.__version__)'
"$PYTHON" -m dsv4_trt.cli plugins build

tests() {
    "$PYTHON" -m pytest -m "$1" -n "$2" -q -ra -p no:cacheprovider -p no:benchmark tests
}
echo "=== tests"
tests "gpu and not full_width" "$WORKERS"
OMP_NUM_THREADS=8 tests full_width 2  # side by side: each takes tens of gigabytes of the GPU

if [ -n "${TENSORRT_INCLUDE_DIR:-}${TENSORRT_ROOT:-}" ]; then
    bash scripts/plugin_harness.sh "$PYTHON"
fi

echo "=== compute-sanitizer memcheck"
# without NCCL's own: it asks the driver for kernels that are not there, which counts as an error
bash scripts/memcheck.sh -k "not nccl_s_own" tests/plugins/cuda \
    "tests/engine/test_cuda_nodes.py::test_every_node_equals_its_reference[tiny-official]"
