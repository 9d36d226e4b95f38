#!/bin/sh
# drawing.sh TIDE: runs page.js in node and checks what it draws: the whole page of each log in drawing.js, and
# the axes and numbers one by one.
node=$(command -v node || command -v nodejs) || {
    echo "1..0 # SKIP node is not installed"
    exit 0
}
exec "$node" "$(dirname "$0")/drawing.js" "$1"
