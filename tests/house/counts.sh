#!/bin/sh
# counts.sh ROOT: .ci/count.awk counts what programs really did: cases that pass, fail and skip, and
# programs that crash, hang or stop half way; .ci/skips.awk sums up what was skipped.
root=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT

# One program's line of a log, as Meson 1.0 writes it: name stdout result returncode [stderr].
object() {
    printf '{"name": "%s", "stdout": "%s", "result": "%s", "starttime": 1.5, "duration": 0.1, ' \
        "$1" "$2" "$3"
    printf '"returncode": %s, "env": {"X": "\\"stdout\\": \\"ok 1\\""}, "command": ["x"]' "$4"
    if [ -n "${5-}" ]; then
        printf ', "stderr": "%s"' "$5"
    fi
    printf '}\n'
}

number=0
failed=0
expect() { # name counts [a line that must be shown]
    number=$((number + 1))
    : >"$folder/counts"
    : >"$folder/skips"
    awk -v stage=plain -v counts="$folder/counts" -v skips="$folder/skips" -f "$root/.ci/count.awk" \
        "$folder/log" >"$folder/shown" 2>&1
    if [ "$(cat "$folder/counts")" = "$2" ] && grep -qF -- "${3-}" "$folder/shown" "$folder/skips" "$folder/counts"; then
        echo "ok $number - $1"
        return
    fi
    failed=1
    echo "# expected $2 and '${3-}', got:"
    cat "$folder/counts" "$folder/shown" "$folder/skips" | sed 's/^/# /'
    echo "not ok $number - $1"
}

echo "1..10"
object a '1..2\nok 1 - x\nok 2 - y # SKIP no \"card\" here\n' OK 0 >"$folder/log"
expect "passed_and_skipped" "1 0 1 1" 'no "card" here	plain a: y'
object a '1..2\n# t.c:3: 1 and 2\nnot ok 1 - x\nok 2 - y\n' ERROR 1 >"$folder/log"
expect "a_failed_case_is_one" "1 1 0 1" "# t.c:3: 1 and 2"
object a '1..3\nok 1 - x\n' ERROR 139 'Segmentation\n\tfault' >"$folder/log"
expect "a_crash_is_a_failure" "1 1 0 1" "	fault"
object a '1..3\nnot ok 1 - x\n' ERROR 139 >"$folder/log"
expect "a_crash_after_a_failure_counts_too" "0 2 0 1" "ended before its last case"
object a '1..2\nok 1 - x\n' TIMEOUT -9 >"$folder/log"
expect "a_hang_is_a_failure" "1 1 0 1" "ran out of time"
object a '' ERROR 127 'no such file' >"$folder/log"
expect "a_program_that_does_not_start_is_a_failure" "0 1 0 1" "no such file"
object a '1..1\nok 1 - x\n' ERROR 66 'ThreadSanitizer: race' >"$folder/log"
expect "a_report_after_the_last_case_is_a_failure" "1 1 0 1" "ThreadSanitizer: race"
object a '1..0 # SKIP no such tool\n' SKIP 0 >"$folder/log"
expect "a_skipped_program_is_one_case" "0 0 1 1" "no such tool	plain a"
{ object a '1..1\nok 1 - not ok in the name\n' OK 0; object b 'talk\n' OK 0; } >"$folder/log"
expect "programs_add_up_and_one_without_cases_is_its_own" "2 0 0 2"

number=$((number + 1))
printf 'no card\tplain a: %s\n' v w x y z >"$folder/skips"
printf 'no drive\tplain b\n' >>"$folder/skips"
awk -f "$root/.ci/skips.awk" "$folder/skips" >"$folder/shown"
if [ "$(grep -c 'plain a: [vwxy]$' "$folder/shown")" = 4 ] && grep -qx '  5: no card' "$folder/shown" &&
    grep -q 'and 1 more' "$folder/shown" && grep -qx '  1: no drive' "$folder/shown"; then
    echo "ok $number - skips_are_summed_by_reason"
else
    failed=1
    sed 's/^/# /' "$folder/shown"
    echo "not ok $number - skips_are_summed_by_reason"
fi
exit $failed
