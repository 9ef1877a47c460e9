#!/usr/bin/env bash
# Sets the real tritonserver up, once, and takes an engine through it with real clients. Needs the extra `test`.
# Usage: triton_tests.sh [python]
set -euo pipefail

cd "$(dirname "$0")/.."
export PYTHON=${1:-$PWD/.venv/bin/python} PYTHONPATH=$PWD OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
bash scripts/triton_server.sh --set-up
"$PYTHON" -m pytest -q -ra -p no:cacheprovider tests/runtime/triton/test_tritonserver.py
