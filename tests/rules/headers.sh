#!/bin/sh
# headers.sh CC CXX ROOT: headers, except those of kernels/cuda, compile alone, as C17 and, in include/tide, as C++17
# (not if CXX is "-").
cc=$1 cxx=$2 root=$3
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT

# Compiles a file that only includes the header twice.
alone() { # compiler language root header
    printf '#include "%s"\n#include "%s"\nextern int unit_is_not_empty;\n' "$4" "$4" >"$folder/unit.$2"
    case $2 in
    c) set -- "$1" "$2" "$3" -std=c17 -Wstrict-prototypes ;;
    *) set -- "$1" "$2" "$3" -std=c++17 ;;
    esac
    compiler=$1 language=$2 base=$3
    shift 3
    # shellcheck disable=SC2086
    $compiler "$@" -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
        -I"$base" -I"$base/include" "$folder/unit.$language" 2>&1 | sed 's/^/# /' >"$folder/talk"
    test ! -s "$folder/talk"
}

case_number=0
verdict() { # status name
    case_number=$((case_number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $case_number - $2"
    else
        echo "not ok $case_number - $2"
        failed=1
    fi
}

each() { # compiler language header...
    compiler_of_each=$1 language_of_each=$2 status=0
    shift 2
    for header; do
        alone "$compiler_of_each" "$language_of_each" "$root" "$header" && continue
        status=1
        cat "$folder/talk"
    done
    return $status
}

failed=0
cd "$root" || exit 1
echo "1..6"
# shellcheck disable=SC2046
each "$cc" c $(find core aio kernels cpu_adam offload tools include tests -name '*.h' ! -path 'kernels/cuda/*' \
    2>/dev/null | sort)
verdict $? "headers_compile_alone_as_c"

public=$(find include -name '*.h' | sort)
if [ "$cxx" = - ]; then
    case_number=2
    echo "ok 2 - public_headers_compile_as_cxx # SKIP no C++ compiler is installed"
else
    # shellcheck disable=SC2086
    each "$cxx" cc $public
    verdict $? "public_headers_compile_as_cxx"
fi

# Public structs have no padding: a field added there would have undefined bytes in older programs.
# shellcheck disable=SC2086
each "$cc -Wpadded" c $public
verdict $? "public_structs_have_no_padding"
mkdir -p "$folder/core"
printf '#include <stdint.h>\nstruct tide_x { uint64_t wide; uint32_t narrow; };\n' >"$folder/core/padded.h"
alone "$cc -Wpadded" c "$folder" core/padded.h
test $? -ne 0
verdict $? "padding_is_found"

# A header that needs another one is found.
printf 'size_t lonely_bytes(void);\n' >"$folder/core/lonely.h"
alone "$cc" c "$folder" core/lonely.h
test $? -ne 0
verdict $? "a_header_that_leans_on_another_is_found"
# A public header that is not C++ is found.
printf 'struct tide_x { int class; };\n' >"$folder/core/only_c.h"
if [ "$cxx" = - ]; then
    echo "ok 6 - a_header_of_c_only_is_found # SKIP no C++ compiler is installed"
else
    alone "$cxx" cc "$folder" core/only_c.h
    test $? -ne 0
    verdict $? "a_header_of_c_only_is_found"
fi
exit $failed
