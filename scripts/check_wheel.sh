#!/usr/bin/env bash
# Builds the wheel from what the Dockerfile's build gets to see, installs it into a clean environment and runs
# the command from there. The dependencies are those of .venv, so that torch is not downloaded twice.
set -euo pipefail

cd "$(dirname "$0")/.."
work=build/wheel
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
rm -rf "$work"
mkdir -p "$work/context"
tar -c --exclude-from=.dockerignore . | tar -x -C "$work/context"
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work" "$work/context"
.venv/bin/python scripts/check_wheel.py "$work"/*.whl

.venv/bin/python -m venv "$work/venv"
clean=$(realpath "$work/venv")
"$clean/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$work"/*.whl
.venv/bin/python -c "$purelib" >"$("$clean/bin/python" -c "$purelib")/dependencies.pth"

cd /  # away from the source tree: only the wheel is left to import
"$clean/bin/python" -c '
import sys, dsv4_trt
assert dsv4_trt.__file__.startswith(sys.prefix), f"{dsv4_trt.__file__} is not of the wheel"
'
"$clean/bin/dsv4-trt" --help
"$clean/bin/python" -c 'from dsv4_trt.cli.main import COMMANDS; print("\n".join(COMMANDS))' |
    while read -r command; do
        "$clean/bin/dsv4-trt" "$command" --help >/dev/null
        echo "dsv4-trt $command --help: ok"
    done
"$clean/bin/dsv4-trt" doctor
