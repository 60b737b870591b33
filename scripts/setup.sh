#!/usr/bin/env bash
# Installs what a build and a private stack need and leaves what is there alone.
# Safe to run again, and by two checkouts at once.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/wheels.sh"
zig_version=0.14.1
networkx_version=3.4.2
tb_version=0.16.78
# The commit that release was cut from: the server reports it, nothing is fetched by it.
tb_commit=c3d9b09dc88e94dde9ac915c6e94a4c650332080
cache=${SETTLENET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/settlenet}
toolchain=$cache/toolchain-tb$tb_version-zig$zig_version

say() { printf 'set-up: %s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

# What must not stay behind, however this ends.
scratch=()
clean_up() { [ ${#scratch[@]} = 0 ] || rm -rf "${scratch[@]}"; }
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

have_libclang() {
    # libclang-cpp is another library, which alone doesn't do.
    ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* 2>/dev/null \
        | grep -v libclang-cpp | grep -q . \
        || [ -n "${LIBCLANG_PATH:-}" ]
}
have_postgres() { command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; }
have_mariadb() { command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; }

missing_packages() {
    command -v gcc >/dev/null || echo gcc
    command -v make >/dev/null || echo make
    command -v python3 >/dev/null || echo python3
    { python3 -m pip --version >/dev/null 2>&1; } || echo python3-pip
    have_libclang || echo libclang-dev
    have_mariadb || echo mariadb-server
    have_postgres || echo postgresql
    command -v flock >/dev/null || echo util-linux
}

install_packages() {
    local packages
    packages=$(missing_packages | tr '\n' ' ')
    [ -z "$packages" ] && return
    if ! command -v apt-get >/dev/null; then
        fail "missing: $packages— this system has no apt-get; install their equivalents and run again"
    fi
    if [ "$(id -u)" != 0 ]; then
        fail "missing: $packages— run 'sudo apt-get install --no-install-recommends $packages' and run again"
    fi
    say "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    # A package's own service must not start: the stack runs private instances only.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        scratch+=("$policy")
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
    fi
    local log=$cache/apt.log status=0
    { apt-get update -qq && apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || { tail -20 "$log" >&2; fail "apt-get failed; its whole output is in $log"; }
}

install_zig() {
    [ -x "$toolchain/zig" ] && return
    say "fetching zig $zig_version (PyPI: ziglang)"
    rm -rf "$toolchain/zig-wheel"
    fetch_wheels "$toolchain/zig-wheel" "ziglang==$zig_version"
    chmod +x "$toolchain/zig-wheel/ziglang/zig"
    ln -sfn zig-wheel/ziglang/zig "$toolchain/zig"
}

# The solver that tests compare netting with; of Python alone, so any Python can read it.
install_networkx() {
    local folder=networkx-$networkx_version
    if [ ! -d "$toolchain/$folder" ]; then
        say "fetching networkx $networkx_version (PyPI: networkx)"
        fetch_wheels "$toolchain/$folder" "networkx==$networkx_version"
    fi
    ln -sfn "$folder" "$toolchain/networkx"
}

# cargo keeps the unpacked sources of a crate in its own registry folder.
sys_crate_source() {
    python3 - <<'PY'
import json, os, subprocess
meta = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version=1", "--locked"]))
path = next(p["manifest_path"] for p in meta["packages"] if p["name"] == "tigerbeetle-unofficial-sys")
print(os.path.join(os.path.dirname(path), "tigerbeetle"))
PY
}

build_tigerbeetle() {
    [ -x "$toolchain/tigerbeetle" ] && return
    say "building TigerBeetle $tb_version from the source its client ships (2 to 4 minutes, once)"
    local source work log=$cache/tigerbeetle-build.log
    source=$(cd "$root" && sys_crate_source)
    work=$(mktemp -d "$cache/tigerbeetle.XXXXXX")
    scratch+=("$work")
    cp -r "$source" "$work/tigerbeetle"
    (
        cd "$work/tigerbeetle"
        ZIG_LOCAL_CACHE_DIR=$work/cache ZIG_GLOBAL_CACHE_DIR=$work/cache "$toolchain/zig" build -Drelease \
            "-Dconfig-release=$tb_version" "-Dconfig-release-client-min=$tb_version" "-Dgit-commit=$tb_commit"
    ) >"$log" 2>&1 || { tail -20 "$log" >&2; fail "TigerBeetle did not build; the whole output is in $log"; }
    mv "$work/tigerbeetle/tigerbeetle" "$toolchain/tigerbeetle"
}

# A minimal toolchain comes without the two that `make lint` runs.
install_lint_tools() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || fail "rustfmt and clippy are missing: install them with your Rust toolchain"
    rustup component add rustfmt clippy
}

command -v cargo >/dev/null || fail "no Rust toolchain: install one (1.95 or newer, from rustup) and run again"
mkdir -p "$cache" "$toolchain/zig-cache" "$root/.local"
exec 9>"$cache/setup.lock"
if command -v flock >/dev/null; then flock 9; fi
install_packages
install_lint_tools
install_zig
install_networkx
ln -sfn "$toolchain" "$root/.local/toolchain"
(cd "$root" && cargo fetch --locked --quiet)
build_tigerbeetle
say "ready"
