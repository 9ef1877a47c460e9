#!/usr/bin/env bash
# On a machine with TensorRT-RTX and TensorRT's headers, which needs no GPU: takes the plugin library through its tests,
# and builds plans of whole models with it. Needs what plugin_harness.sh needs; ARCH is sm_120a unless it says otherwise.
# Usage: tensorrt_plans.sh [python]
set -euo pipefail

cd "$(dirname "$0")/.."
export PYTHON=${1:-python3} PYTHONPATH=$PWD OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} ARCH=${ARCH:-sm_120a}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$PYTHON" -c 'from importlib.metadata import version; print("tensorrt-rtx-cu13", version("tensorrt-rtx-cu13"))'
bash scripts/plugin_harness.sh "$PYTHON"

echo "=== plans: of every kind of graph"
"$PYTHON" -m pytest -q -ra -p no:cacheprovider tests/builder

echo "=== plans: whole models, with the library's plugins"
for model in tiny flash pro; do
    "$PYTHON" -m dsv4_trt.cli build --preset "$model" --dummy-weights --engine tensorrt-rtx --target "$ARCH" \
        --output_dir "$folder/$model" >"$folder/said"
    "$PYTHON" -m dsv4_trt.cli inspect "$folder/$model" | sed -n "s|$folder/||; /^plans of/,/^log/p"
done
