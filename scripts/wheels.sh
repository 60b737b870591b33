# For the scripts beside it: Python packages as folders, without an installation.

# Fetches packages, pinned as NAME==VERSION and without what they depend on, and unpacks them
# into one folder, which is there as a whole or not at all.
fetch_wheels() (
    folder=$1
    shift
    work=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check \
        -d "$work" "$@"
    for wheel in "$work"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked"
    done
    # Of two at once the first wins.
    [ -d "$folder" ] || mv -T "$work/unpacked" "$folder"
)
