#!/usr/bin/env bash
# ahead.sh ROOT: what .ci/ahead runs in the background ends when it is told to, by itself, and with a
# script that was killed.
source "${BASH_SOURCE[0]%/*}/tap.sh"
source "$root/.ci/ahead"

# Tries for a minute; what is waited for takes a second.
until_true() { # command...
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}

gone() { # group
    ! group_runs "$1"
}

# Work whose own children do the work, as a compiler's driver has them.
work() { # mark
    sleep 1000 &
    : >"$folder/$1"
    wait
}

echo "1..3"
ahead_begin work told
group=$ahead
until_true test -e "$folder/told" && group_runs "$group" && ahead_end && gone "$group" && [[ -z $ahead ]]
verdict $? "it_ends_when_it_is_told_to"

ahead_begin true
until_true gone "$ahead" && ahead_end
verdict $? "it_ends_by_itself"

# A script with work ahead, killed while it waits for something else.
mkfifo "$folder/never"
bash -c 'folder=$1; source "$0"; '"$(declare -f work)"'
    ahead_begin work killed; echo "$ahead" >"$folder/group"; read -r <"$folder/never"' \
    "$root/.ci/ahead" "$folder" &
script=$!
until_true test -e "$folder/killed" && until_true test -s "$folder/group" && group=$(cat "$folder/group") &&
    group_runs "$group" && kill -KILL "$script" && until_true gone "$group"
verdict $? "it_ends_with_a_script_that_was_killed"
gone "$group" || kill -KILL -- "-$group"
wait 2>/dev/null
exit $failed
