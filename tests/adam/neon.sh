#!/bin/sh
# neon.sh NATIVE ROOT [CC]: builds check_adam for AArch64, runs it under qemu and compares its
# digest with that of NATIVE.
native=$(realpath "$1") root=$2
cc=${3:-aarch64-linux-gnu-gcc}
echo "1..2"
for tool in "$cc" qemu-aarch64; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "ok 1 - neon_equals_reference # SKIP $tool is not installed"
        echo "ok 2 - neon_equals_this_machine # SKIP $tool is not installed"
        exit 0
    fi
done
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$root" || exit 1
if ! "$cc" -std=c17 -D_GNU_SOURCE -O2 -static -ffp-contract=off -fno-math-errno -Wall -Wextra -Werror \
    -pthread -I. -Iinclude cpu_adam/check.c cpu_adam/description.c cpu_adam/format.c cpu_adam/ops.c \
    cpu_adam/pass.c cpu_adam/scalars.c cpu_adam/state.c cpu_adam/step.c cpu_adam/norm.c cpu_adam/variant_scalar.c \
    cpu_adam/variant_neon.c core/base/bell.c core/base/clock.c core/base/cpus.c core/base/err.c core/base/utf8.c \
    core/base/half.c core/base/log.c core/base/rng.c core/base/team.c core/base/thread.c tests/harness/test.c \
    tests/adam/ref.c tests/adam/check_adam.c tests/adam/check_norm.c \
    tests/adam/check_bench.c tests/adam/check_common.c -o "$folder/check" -lm >"$folder/log" 2>&1; then
    sed 's/^/# /' "$folder/log"
    echo "not ok 1 - neon_equals_reference"
    echo "not ok 2 - neon_equals_this_machine"
    exit 1
fi
status=0
if CHECK_ADAM_STEP=19 qemu-aarch64 "$folder/check" >"$folder/log" 2>&1 &&
    grep -q "neon: checked" "$folder/log"; then
    echo "ok 1 - neon_equals_reference"
else
    sed 's/^/# /' "$folder/log"
    echo "not ok 1 - neon_equals_reference"
    status=1
fi
here=$("$native" --digest)
there=$(qemu-aarch64 "$folder/check" --digest)
echo "# digest here $here, there $there"
if [ -n "$here" ] && [ "$here" = "$there" ]; then
    echo "ok 2 - neon_equals_this_machine"
else
    echo "not ok 2 - neon_equals_this_machine"
    status=1
fi
exit $status
