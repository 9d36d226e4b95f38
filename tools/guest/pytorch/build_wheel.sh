#!/bin/sh
# build_wheel.sh [LIBTIDE.so [FOLDER]]: builds a wheel that contains libtide.so, without network.
set -e
here=$(cd "$(dirname "$0")" && pwd)
TIDE_LIBRARY=$(realpath "${1:-$here/../../../build/offload/api/libtide.so}")
export TIDE_LIBRARY
folder=${2:-.}
mkdir -p "$folder"
name=$(PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 python3 -c \
    'import sys, backend; print(backend.build_wheel(sys.argv[1]))' "$folder")
echo "$folder/$name"
