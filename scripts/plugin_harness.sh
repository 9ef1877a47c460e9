#!/usr/bin/env bash
# Builds the kernel library with its TensorRT plugins and takes these through the harness, without TensorRT. On a
# machine with a GPU every call in the tests of the ops is run as its plugin too, in two contexts and in a CUDA graph,
# and must give the same bytes. Needs TENSORRT_INCLUDE_DIR or TENSORRT_ROOT; ARCH names what to compile for where there
# is no GPU; WORKERS says how many tests at once. Usage: plugin_harness.sh [python]
set -euo pipefail

cd "$(dirname "$0")/.."
export PYTHON=${1:-python3} PYTHONPATH=$PWD OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
if [ -z "${TENSORRT_INCLUDE_DIR:-}${TENSORRT_ROOT:-}" ]; then
    echo "set TENSORRT_INCLUDE_DIR to the folder that has NvInferRuntime.h" >&2
    exit 2
fi

echo "=== plugins: build"
built=$("$PYTHON" -m dsv4_trt.cli plugins build ${ARCH:+--arch "$ARCH"} --json)
echo "$built"
field() { "$PYTHON" -c 'import json, sys; print(json.loads(sys.argv[1])[sys.argv[2]])' "$built" "$1"; }
DSV4_PLUGIN_LIBRARY=$(field library)
export DSV4_PLUGIN_LIBRARY

tests() { "$PYTHON" -m pytest -q -ra -p no:cacheprovider -p no:benchmark "$@"; }
echo "=== plugins: as TensorRT asks them"
tests tests/plugins/trt tests/plugins/test_workspace_bound.py

if ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "=== plugins: not run, there is no GPU"
    exit 0
fi
echo "=== plugins: each op as its plugin"
log=$(mktemp)
DSV4_PLUGIN_HARNESS=1 tests -m gpu -n "${WORKERS:-8}" tests/plugins/cuda | tee "$log"
grep -q '^plugins equal to their ops: .*linear [1-9]' "$log" || {
    echo "no call was compared with its plugin" >&2
    exit 1
}
rm "$log"
