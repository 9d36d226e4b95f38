#!/bin/sh
# drawing.sh TIDE: runs drawing.js in node.
node=$(command -v node || command -v nodejs) || {
    echo "1..0 # SKIP node is not installed"
    exit 0
}
exec "$node" "$(dirname "$0")/drawing.js" "$1"
