#!/bin/sh
# drawing.sh PAPER: what page.js draws, in node: the whole page of each log of drawing.js is checked, and
# the script's axes and numbers one by one.
node=$(command -v node || command -v nodejs) || {
    echo "1..0 # SKIP there is no node here"
    exit 0
}
exec "$node" "$(dirname "$0")/drawing.js" "$1"
