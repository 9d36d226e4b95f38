#!/usr/bin/env python3
"""What bitsandbytes 0.50.2 makes of weights on the CPU (torch 2.15.0).
  quant.py values OUT    writes kernels/quant_values.h: the values of the codes of NF4 and of the signed dynamic map
  quant.py fixtures OUT  writes tests/kernels/quant.bin: codes, scales and hashes of expanded weights of small tensors;
                         tests/kernels/test_quant.c makes the same weights and reads them in this order
  quant.py differences   counts where back ends of bitsandbytes differ: docs/adapters.md has the result
Needs torch and bitsandbytes."""
import struct
import sys

import torch
import bitsandbytes.functional as bnb

torch.set_num_threads(1)

# Rows, columns, type. Row 1 of the fourth tensor and a block of 64 of the first are zero.
TENSORS = [(24, 40, torch.bfloat16), (3, 58, torch.float32), (130, 260, torch.bfloat16), (5, 128, torch.float16), (1, 64, torch.float32)]


def weights(rows, cols, dtype, zeros):
    state, values = rows * 1000 + cols, []
    for _ in range(rows * cols):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(((state >> 8) - 2**23) * 2.0 ** (-28 if (state >> 4) % 32 else -26))
    w = torch.tensor(values, dtype=torch.float64).float().to(dtype)
    w[zeros[0]:zeros[1]] = 0
    return w.reshape(rows, cols)


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return h


def bytes_of(t):
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def expanded(t):
    return struct.pack("<Q", fnv(bytes_of(t)))


def fixtures(out):
    for i, (rows, cols, dtype) in enumerate(TENSORS):
        w = weights(rows, cols, dtype, (128, 192) if i == 0 else (128, 256) if i == 3 else (0, 0))
        codes, state = bnb.quantize_4bit(w, quant_type="nf4", compress_statistics=True)
        out.write(bytes_of(codes) + bytes_of(state.absmax) + bytes_of(state.state2.absmax) + bytes_of(state.offset.reshape(1)))
        for to in (torch.bfloat16, torch.float16, torch.float32):
            state.dtype = to
            out.write(expanded(bnb.dequantize_4bit(codes, state)))
        codes, state = bnb.quantize_4bit(w, quant_type="nf4", compress_statistics=False)
        out.write(bytes_of(codes) + bytes_of(state.absmax) + expanded(bnb.dequantize_4bit(codes, state)))
        codes, scales, _ = bnb.int8_vectorwise_quant(w.half())
        codes[scales == 0] = 0  # 0 * inf is NaN, and its conversion to a byte depends on the processor
        out.write(bytes_of(codes) + bytes_of(scales))
        out.write(expanded(bnb.int8_vectorwise_dequant(codes, scales).to(torch.bfloat16)))


def values(out):
    def macro(name, numbers):
        lines, line = [f"#define {name}"], "   "
        for x in numbers:
            mantissa, exponent = float(x).hex().split("p")
            text = f" {mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}f,"
            if len(line + text) > 96:
                lines.append(line)
                line = "   "
            line += text
        return "\n".join(f"{text:98}\\" for text in lines) + "\n" + line.rstrip(",")

    nf4 = macro("KERN_NF4_VALUES", bnb.get_4bit_type("nf4", device="cpu"))
    dynamic = macro("KERN_DYNAMIC_VALUES", bnb.create_dynamic_map())
    out.write(f"""/* quant_values.h: the value of each code, for the CPU and for CUDA. Made by
 * tests/oracle/quant.py from the tables of bitsandbytes. */
#ifndef KERNELS_QUANT_VALUES_H
#define KERNELS_QUANT_VALUES_H

/* clang-format off */
/* NF4: by code of 4 bits. */
{nf4}

/* The signed dynamic map: by code of 8 bits. */
{dynamic}
/* clang-format on */

#endif
""".encode())


def differences():
    torch.manual_seed(1)
    code = bnb.create_dynamic_map()
    bounds = (code[:-1] + code[1:]) / 2
    tensors = offsets = scales_by_offset = scales_by_search = scales = int8 = expanded_nf4 = elements = 0
    for rows in (256, 1024, 4096):
        for _ in range(20):
            w = (torch.randn(rows, 1024) * 0.02).bfloat16()
            codes, absmax = torch.ops.bitsandbytes.quantize_4bit(w, 64, "nf4", torch.uint8)
            mean, exact = absmax.mean(), absmax.double().mean().float()
            by_mean, _ = bnb.quantize_blockwise(absmax - mean, blocksize=256)
            by_exact, _ = bnb.quantize_blockwise(absmax - exact, blocksize=256)
            blocks = (absmax - exact).reshape(-1, 256)
            nearest = torch.bucketize(blocks * (1 / blocks.abs().max(1, keepdim=True).values), bounds)
            tensors, scales, elements = tensors + 1, scales + absmax.numel(), elements + w.numel()
            offsets += int(mean != exact)
            scales_by_offset += int((by_mean != by_exact).sum())
            scales_by_search += int((nearest.flatten() != by_exact).sum())
            half = w.half().float()
            most = half.abs().max(1, keepdim=True).values
            int8 += int((torch.round(half * (127 / most.double()).float()) != bnb.int8_vectorwise_quant(w.half())[0]).sum())
            plain = torch.stack([codes.flatten() >> 4, codes.flatten() & 15], 1).flatten().long()
            plain = (bnb.get_4bit_type("nf4", device="cpu")[plain].reshape(-1, 64) * absmax[:, None]).bfloat16().reshape(w.shape)
            made = torch.ops.bitsandbytes.dequantize_4bit(codes, absmax, 64, "nf4", list(w.shape), torch.bfloat16)
            expanded_nf4 += int((made != plain).sum())
    print(f"{tensors} tensors of {elements} weights and {scales} scales")
    print(f"offset, torch's mean and the exact mean: {offsets} differ; codes of scales then: {scales_by_offset}")
    print(f"codes of scales, by steps of 1/65535 (CPU) and by the nearest value (CUDA, other devices): {scales_by_search}")
    print(f"int8 codes, factor 127 * (1 / scale) (CPU) and 127 / scale (CUDA): {int8}")
    print(f"bf16 weights, expanded by the CPU's kernel and by one product and one rounding: {expanded_nf4}")


if sys.argv[1] == "differences":
    differences()
else:
    with open(sys.argv[2], "wb") as file:
        {"values": values, "fixtures": fixtures}[sys.argv[1]](file)
