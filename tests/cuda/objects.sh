#!/bin/sh
# objects.sh NVCC ROOT: compiles the hot kernels for sm_90 and checks PTX and, with cuobjdump,
# machine code: they do not spill registers, and use wide accesses and tensor-core instructions.
nvcc=$1 root=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cuobjdump=$(dirname "$nvcc")/cuobjdump
[ -x "$cuobjdump" ] || cuobjdump=$(command -v cuobjdump)
number=0
failed=0

verdict() { # status name
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        failed=1
    fi
}

# Leaves NAME.ptx, NAME.cubin and the messages of ptxas in NAME.log.
compile() { # name ptx card
    "$nvcc" -std=c++17 -O3 -fmad=false -gencode=arch="compute_$2,code=sm_$3" -I"$root" -Xptxas -v -cubin -keep -keep-dir "$folder" \
        "$root/kernels/cuda/$1.cu" -o "$folder/$1.cubin" >"$folder/$1.log" 2>&1 ||
        sed 's/^/# /' "$folder/$1.log"
}

# Succeeds if ptxas has reported kernels without spills.
in_registers() { # name
    grep -q "spill stores" "$folder/$1.log" &&
        ! grep "spill stores" "$folder/$1.log" | grep -v " 0 bytes spill stores, 0 bytes spill loads" |
        sed 's/^/# /' | grep .
}

has() { # name pattern...
    name=$1
    shift
    for pattern; do
        grep -q -- "$pattern" "$folder/$name.ptx" || { echo "# $name.ptx has no $pattern"; return 1; }
    done
}

has_not() { # name pattern
    ! grep -q -- "$2" "$folder/$1.ptx"
}

assembled() { # name pattern...
    name=$1
    shift
    "$cuobjdump" -sass "$folder/$name.cubin" >"$folder/$name.sass" 2>&1 || return 1
    for pattern; do
        grep -q -- "$pattern" "$folder/$name.sass" || { echo "# $name has no $pattern"; return 1; }
    done
}

cd "$folder" || exit 1
echo "1..11"
status=0
for kernel in attention_mma attention_grad norm norm_grad pointwise loss_rows update squares; do
    compile $kernel 80 90
    in_registers $kernel || status=1
done
for kernel in attention_sm90 attention_grad_sm90; do
    compile $kernel 90a 90a
    in_registers $kernel || status=1
done
verdict $status "hot_kernels_do_not_spill"

has attention_mma 'mma.sync.aligned.m16n8k16.row.col.f32.bf16' 'mma.sync.aligned.m16n8k16.row.col.f32.f16' \
    ldmatrix.sync.aligned.m8n8.x4.shared ldmatrix.sync.aligned.m8n8.x4.trans cp.async.cg.shared.global
verdict $? "attention_is_on_tensor_cores"
has attention_grad 'mma.sync.aligned.m16n8k16.row.col.f32.bf16' \
    'mma.sync.aligned.m16n8k16.row.col.f32.f16' ldmatrix.sync.aligned.m8n8.x4.trans cp.async.cg.shared
verdict $? "its_gradient_too"
has attention_sm90 wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16 \
    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16 setmaxnreg.inc cp.async.bulk.tensor.3d &&
    has attention_grad_sm90 wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16 \
        wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16 setmaxnreg.inc cp.async.bulk.tensor.3d
verdict $? "hoppers_attention_is_by_warpgroups_and_bulk_copies"
# ptxas warns if it serialises tensor-core products.
! cat "$folder/attention_sm90.log" "$folder/attention_grad_sm90.log" | grep -i serialized | sed 's/^/# /' | grep .
verdict $? "its_products_go_on_by_themselves"
has norm ld.global.v4.u32 st.global.v4.u32 && has norm_grad ld.global.v4.u32 st.global.v4.u32
verdict $? "norms_move_16_bytes_at_a_time"
has pointwise ld.global.v4.u32 st.global.v4.u32 && has loss_rows ld.global.v4.u32 st.global.v4.u32
verdict $? "pointwise_ops_and_losses_too"
has update ld.global.v4 st.global.v4 ld.global.v2 st.global.v2 fma.rn.f32 div.rn.f32 sqrt.rn.f32
verdict $? "the_update_moves_words_and_rounds_as_written"
has_not update approx && has_not update .ftz
verdict $? "the_update_has_no_approximation"
if [ -n "$cuobjdump" ] && [ -x "$cuobjdump" ]; then
    assembled attention_mma HMMA.16816.F32.BF16 HMMA.16816.F32 LDSM.16 LDGSTS &&
        assembled attention_grad HMMA.16816.F32.BF16 LDSM.16 && assembled norm LDG.E.128 STG.E.128 &&
        assembled pointwise LDG.E.128 STG.E.128 &&
        assembled attention_sm90 HGMMA.64x128x16.F32.BF16 HGMMA.64x64x16.F32 WARPGROUP.DEPBAR UTMALDG.3D USETMAXREG &&
        assembled attention_grad_sm90 HGMMA.64x64x16.F32.BF16 HGMMA.64x128x16.F32 WARPGROUP.DEPBAR UTMALDG.3D USETMAXREG
    verdict $? "the_card's_own_code_has_them_too"
else
    verdict 0 "the_card's_own_code_has_them_too # SKIP cuobjdump is not installed"
fi

# A kernel that spills registers is detected.
cat >"$folder/spills.cu" <<'END'
__global__ void __launch_bounds__(1024, 2) spills(float *x)
{
    float kept[64];
    for (int i = 0; i < 64; i++) { kept[i] = x[i * 1024 + threadIdx.x]; }
    __syncthreads();
    for (int i = 0; i < 64; i++) { x[(i * 37 % 64) * 1024 + threadIdx.x] = kept[i] * kept[63 - i]; }
}
END
"$nvcc" -O3 -arch=sm_90 -Xptxas -v -cubin spills.cu -o spills.cubin >spills.log 2>&1
in_registers spills >/dev/null
test $? -ne 0
verdict $? "a_kernel_that_spills_is_found"
exit $failed
