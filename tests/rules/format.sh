#!/bin/sh
# format.sh ROOT: checks the sources with clang-format 14, and the length of comments, which it does not break.
root=$1
case $(clang-format --version 2>/dev/null) in
*"version 14."*) ;;
*)
    echo "1..0 # SKIP clang-format 14 is not installed (other versions break lines elsewhere)"
    exit 0
    ;;
esac
cd "$root" || exit 1
echo "1..4"
failed=0
if find core aio kernels cpu_adam offload tools include tests \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null |
    xargs -0 clang-format --dry-run --Werror >&2; then
    echo "ok 1 - sources_are_formatted"
else
    failed=1
    echo "not ok 1 - sources_are_formatted"
fi
# A space too many is detected.
if printf 'int  x;\n' | clang-format --dry-run --Werror --assume-filename="$root/core/x.c" 2>/dev/null; then
    failed=1
    echo "not ok 2 - a_wrong_space_is_found"
else
    echo "ok 2 - a_wrong_space_is_found"
fi
wide_comments='
{ columns = $0; gsub(/[\200-\277]/, "", columns) } # one byte is left of each UTF-8 character
length(columns) > 100 && ($0 ~ "^ *([*]|//)" || index($0, "/*")) {
    print FILENAME ":" FNR ": a comment exceeds 100 columns: " $0
    found = 1
}
END { exit found }'
# tests/api/recorded is never edited.
if find core aio kernels cpu_adam offload tools include tests -path tests/api/recorded -prune -o \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    LC_ALL=C xargs -0 awk "$wide_comments" >&2; then
    echo "ok 3 - comments_have_at_most_100_columns"
else
    failed=1
    echo "not ok 3 - comments_have_at_most_100_columns"
fi
if printf 'int x; /* %0100d */\n' 0 | LC_ALL=C awk "$wide_comments" >/dev/null; then
    failed=1
    echo "not ok 4 - a_wide_comment_is_found"
else
    echo "ok 4 - a_wide_comment_is_found"
fi
exit $failed
