#!/usr/bin/env bash
# executable.sh ROOT: files whose first line names an interpreter are executable.
cd "$1" || exit 1

# Lists files that begin with #! and are not executable, except in .git and build folders.
cannot_run() { # folder
    find "$1" -path "$1/.git" -prune -o -path "$1/build*" -prune -o -type f ! -perm -u+x -print0 |
        xargs -0 grep -lI -m 1 '^#!' | while read -r file; do
        [[ $(head -c 2 "$file") == '#!' ]] && echo "$file"
    done
}

echo "1..2"
failed=0
found=$(cannot_run .)
if [[ -z $found ]]; then
    echo "ok 1 - scripts_can_be_run"
else
    failed=1
    sed 's/^/# not executable: /' <<<"$found"
    echo "not ok 1 - scripts_can_be_run"
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
printf '#!/bin/sh\n' | tee "$folder/not" >"$folder/is"
printf 'text\n#!/bin/sh\n' >"$folder/text"
chmod +x "$folder/is"
if [[ $(cannot_run "$folder") == "$folder/not" ]]; then
    echo "ok 2 - a_script_that_is_not_executable_is_found"
else
    failed=1
    echo "not ok 2 - a_script_that_is_not_executable_is_found"
fi
exit $failed
