#!/bin/sh
# build_wheel.sh [LIBTIDE.so [FOLDER]]: builds a wheel that contains libtide.so, without network.
set -e
here=$(cd "$(dirname "$0")" && pwd)
TIDE_LIBRARY=$(realpath -m "${1:-$here/../../../build/offload/api/libtide.so}")
if [ ! -f "$TIDE_LIBRARY" ]; then
    echo "build_wheel.sh: $TIDE_LIBRARY does not exist; build libtide.so first (ninja -C build)," \
        "or name it as the first argument" >&2
    exit 2
fi
export TIDE_LIBRARY
folder=${2:-.}
mkdir -p "$folder"
name=$(PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 python3 -c \
    'import sys, backend; print(backend.build_wheel(sys.argv[1]))' "$folder")
echo "$folder/$name"
