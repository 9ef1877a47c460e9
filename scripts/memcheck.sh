#!/usr/bin/env bash
# Tests that need a GPU under compute-sanitizer, a few to a process, WORKERS processes at once. Says how each went,
# and all of it where something failed. Usage: memcheck.sh TESTS..., or options by which pytest chooses tests; PYTHON
# names another python3.
set -euo pipefail

# one thread: of several, a process's first product on a CPU is now and then off by 1e-5
export PYTHON=${PYTHON:-python3} PYTHONPATH=$PWD OMP_NUM_THREADS=1

memcheck() {
    local log status=0
    log=$(mktemp)
    compute-sanitizer --tool memcheck --error-exitcode 9 --kernel-name-exclude kns=at:: \
        "$PYTHON" -m pytest -m gpu -q -p no:cacheprovider -p no:benchmark "$@" >"$log" 2>&1 || status=$?
    printf '%s\n' "$@"
    echo "    $(grep -E '(passed|failed|error).* in ' "$log" | tail -n 1), $(grep 'ERROR SUMMARY' "$log" | head -n 1)"
    ((status == 0)) || cat "$log"
    rm "$log"
    return $status
}
export -f memcheck

"$PYTHON" -m pytest -m gpu -q --collect-only -p no:cacheprovider "$@" | grep '::' |
    xargs -d '\n' -n 4 -P "${WORKERS:-8}" bash -c 'memcheck "$@"' memcheck
