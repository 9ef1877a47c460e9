#!/usr/bin/env bash
# On a machine with a GPU: builds the kernels, runs every test that needs one, then the tests of each op, and a
# small model node by node, under compute-sanitizer. WORKERS says how many at once. Usage: gpu_tests.sh [python]
set -euo pipefail

cd "$(dirname "$0")/.."
export PYTHON=${1:-python3} PYTHONPATH=$PWD OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
workers=${WORKERS:-8}

# A test function in a process of its own; says how it went, and all of it if it failed.
memcheck() {
    local log status=0
    log=$(mktemp)
    compute-sanitizer --tool memcheck --error-exitcode 9 --kernel-name-exclude kns=at:: \
        "$PYTHON" -m pytest -m gpu -q -p no:cacheprovider -p no:benchmark "$1" >"$log" 2>&1 || status=$?
    echo "$1: $(grep -E '(passed|failed|error).* in ' "$log" | tail -n 1), $(grep 'ERROR SUMMARY' "$log" | head -n 1)"
    ((status == 0)) || cat "$log"
    rm "$log"
    return $status
}
export -f memcheck

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$PYTHON" -c 'import torch; print("torch", torch.__version__)'
"$PYTHON" -m dsv4_trt.cli plugins build

tests() {
    "$PYTHON" -m pytest -m "$1" -n "$2" -q -ra -p no:cacheprovider -p no:benchmark tests
}
echo "=== tests"
tests "gpu and not full_width" "$workers"
tests full_width 2  # side by side: each takes tens of gigabytes of the GPU

echo "=== compute-sanitizer memcheck"
{
    "$PYTHON" -m pytest -m gpu -q --collect-only -p no:cacheprovider tests/plugins/cuda |
        grep '::' | cut -d[ -f1 | sort -u
    echo "tests/engine/test_cuda_nodes.py::test_every_node_equals_its_reference[tiny-official]"
} | xargs -P "$workers" -I{} bash -c 'memcheck "$@"' memcheck {}
