#!/usr/bin/env bash
# Fetches OR-tools, the floor of `settlenet bench --only netting`, beside the toolchain that
# scripts/setup.sh has made. Nothing else needs it. Safe to run again.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/wheels.sh"
ortools_version=9.15.6755
numpy_version=2.2.6

say() { printf 'bench: %s\n' "$*"; }

# Both have machine code, so another Python needs others.
python=$(python3 -c 'import sys; print(sys.implementation.cache_tag)')
toolchain=$(cd "$root/.local/toolchain" && pwd -P)
folder=$toolchain/ortools-$ortools_version-$python
if [ ! -d "$folder" ]; then
    say "fetching OR-tools $ortools_version (PyPI: ortools, numpy)"
    fetch_wheels "$folder" "ortools==$ortools_version" "numpy==$numpy_version"
fi
ln -sfn "${folder##*/}" "$toolchain/ortools"
