# tap.sh: what scripts that test scripts share; sourced with the tree's root as $1. A folder of their own,
# and a line a case. Each of them counts its cases itself, and ends with $failed.
root=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT

number=0
failed=0
# What was said stands in $folder/talk, where there was any.
verdict() { # status name
    number=$((number + 1))
    if (($1 == 0)); then
        echo "ok $number - $2"
        return
    fi
    failed=1
    [[ ! -e $folder/talk ]] || sed 's/^/# /' "$folder/talk"
    echo "not ok $number - $2"
}
