#!/usr/bin/env bash
# bundle_names.sh: checks that programs of `bundle` are targets of the build, and that programs of
# run_on_card are in the bundle.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
listed=$("$here/bundle" --list)
used=$(sed 's/#.*//' "$here/run_on_card" |
    grep -oE '\$here/bin/[a-z_0-9]+|(cases|sanitized) [a-z0-9]+ test_[a-z_]+|tested [a-z_]+ [0-9]+ test_[a-z_]+' |
    grep -oE '[a-z_0-9]+$' | sort -u)
number=0
failed=0

tell() { # rc what
    number=$((number + 1))
    (($1 == 0)) || { failed=1 && printf 'not '; }
    printf 'ok %d - %s\n' "$number" "$2"
}

while read -r program; do
    grep -qE "^build $program: " "$TIDE_BUILD_ROOT/build.ninja"
    tell $? "${program##*/} is a target"
done <<<"$listed"
while read -r name; do
    grep -qE "(^|/)$name\$" <<<"$listed"
    tell $? "$name is in the bundle"
done <<<"$used"
printf '1..%d\n' "$number"
exit $failed
