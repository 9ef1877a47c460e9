#!/usr/bin/env bash
# A real Triton Inference Server on a machine without containers: the CPU build that the wheel of nvidia-pytriton
# carries, set up once in build/triton, with this tree's code and the packages of a Python environment.
#
#   triton_server.sh --set-up              only the set-up
#   triton_server.sh --check               whether that is done
#   triton_server.sh REPOSITORY [OPTION..] serves a model repository; options are those of tritonserver
#
# PYTHON is the environment's interpreter, .venv/bin/python unless it says otherwise. As root on Debian, a Python
# library that is missing is installed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
place=$root/build/triton
wheel=nvidia-pytriton==0.7.0
server=$place/wheel/pytriton/tritonserver
site=$place/python/lib/python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages

# the server, and the stub for this version of Python in its place; a link, as the stub finds its libraries from where it lies
unpack() {
    local version=$1 stub=../../python_backend_stubs/$1/triton_python_backend_stub
    if [ ! -x "$server/bin/tritonserver" ]; then
        rm -rf "$place/wheel" "$place/download"
        "$python" -m pip download --quiet --no-deps --dest "$place/download" "$wheel"
        "$python" -m zipfile -e "$place"/download/*.whl "$place/wheel"
        rm -rf "$place/download"
        chmod +x "$server"/python_backend_stubs/*/triton_python_backend_stub "$server/bin/tritonserver"
    fi
    if [ ! -x "$server/backends/python/$stub" ]; then
        echo "$wheel has no Python backend for Python $version; name another interpreter with PYTHON" >&2
        exit 1
    fi
    ln -sfn "$stub" "$server/backends/python/triton_python_backend_stub"
}

# the stub's interpreter: NumPy 1, as this build's stub crashes with 2, and behind it all that the environment has
make_environment() {
    rm -rf "$place/python"
    "$python" -m venv --without-pip "$place/python"
    "$python" -m pip install --quiet --no-compile --target "$site" 'numpy<2'
    {
        echo "$root"
        echo "import site; site.addsitedir('$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')"
    } >"$site/dsv4_trt.pth"
}

# where libpython is that the stub is linked to; installed if it is nowhere
find_libpython() {
    local name=$1 folder
    folder=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR") or "")')
    if [ -e "$folder/$name" ]; then
        echo "$folder"
    elif ! ldconfig -p | grep -qF "$name"; then
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends "${name%%.so*}"; } >&2
    fi
}

set_up() {
    local version
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    rm -f "$place/ready"
    mkdir -p "$place"
    unpack "$version"
    make_environment
    find_libpython "libpython$version.so.1.0" >"$place/libpython"
    "$place/python/bin/python3" -c 'import numpy, torch, dsv4_trt; assert numpy.__version__ < "2"'
    if LD_LIBRARY_PATH=$(<"$place/libpython") ldd "$server/backends/python/triton_python_backend_stub" | grep 'not found' >&2; then
        exit 1
    fi
    state >"$place/ready"
}

# what the set-up was made for: made again when that changed
state() {
    echo "$wheel $("$python" -c 'import sys; print(sys.executable, sys.version)') $root"
}

if [ $# -eq 0 ]; then
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \?//p'
    exit 2
fi
is_ready() { [ "$(cat "$place/ready" 2>/dev/null)" = "$(state)" ]; }
if [ "$1" = --check ]; then
    is_ready
    exit
fi
if ! is_ready; then # not `is_ready || set_up`: in that, errors in set_up would not end the script
    set_up
fi
[ "$1" != --set-up ] || exit 0
repository=$1
shift

# the stub ignores PYTHONPATH and runs the first python3 of PATH
export PATH=$place/python/bin:$PATH
library=$(<"$place/libpython")
[ -z "$library" ] || export LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$server/bin/tritonserver" --model-repository="$repository" --backend-directory="$server/backends" \
    --allow-gpu-metrics=false "$@"
