#!/usr/bin/env bash
# The browser that the page's tests drive: nothing to do where one is there, Debian's package otherwise.
set -euo pipefail

if command -v chromium >/dev/null; then
    chromium --version
    exit
fi
apt-get -qq update
apt-get -qq install -y --no-install-recommends chromium >/dev/null
chromium --version
