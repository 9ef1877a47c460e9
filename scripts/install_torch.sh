#!/usr/bin/env bash
# Installs the torch that pyproject.toml asks for into the Python given as $1, unless a fitting one is there.
#
#   TORCH_INDEX_URL set   from that index
#   an NVIDIA GPU         the default build, which brings CUDA
#   neither               a CPU build: a few hundred MB instead of several GB
set -euo pipefail

python=${1:?usage: install_torch.sh PYTHON}
cd "$(dirname "$0")/.."
cpu_index=https://download.pytorch.org/whl/cpu

requirement=$("$python" - <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(next(d for d in project["dependencies"] if d.startswith("torch")))
PY
)

# with no index and no other source pip can only find what is installed already
if PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' "$python" -m pip install --quiet --no-index "$requirement" 2>/dev/null &&
    "$python" -c 'import torch' 2>/dev/null; then
    exit 0
fi

echo "installing $requirement"
if [ -n "${TORCH_INDEX_URL:-}" ]; then
    "$python" -m pip install --no-compile --index-url "$TORCH_INDEX_URL" "$requirement"
elif nvidia-smi -L >/dev/null 2>&1; then
    "$python" -m pip install --no-compile "$requirement"
else
    "$python" -m pip install --no-compile --quiet 'torch==2.13.0+cpu' 2>/dev/null ||
        "$python" -m pip install --no-compile --retries 1 --index-url "$cpu_index" "$requirement" ||
        "$python" -m pip install --no-compile "$requirement"
fi
