#!/usr/bin/env bash
# mypy over the package; fails if it checked fewer files than there are (the rooms are links, and a broken
# link would make them vanish without a word).
set -euo pipefail

cd "$(dirname "$0")/.."
output=$(mypy -p dsv4_trt) || { echo "$output"; exit 1; }
echo "$output"
checked=$(sed -n 's/.*no issues found in \([0-9]*\) source files.*/\1/p' <<<"$output")
existing=$(find -L dsv4_trt -name '*.py' | wc -l)
if [ "$checked" -ne "$existing" ]; then
    echo "mypy checked $checked files of $existing" >&2
    exit 1
fi
