#!/usr/bin/env python3
"""Writes tests/kernels/torch_ops.bin: small inputs of the ops, with results and gradients that PyTorch computes in float64,
and RoPE tables of transformers. tests/kernels/test_torch.c reads them in the order written here.
Needs torch and transformers. Usage: ops.py OUT"""
import struct
import sys

import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

torch.manual_seed(5)
out = open(sys.argv[1], "wb")

def put(t):
    t = t.detach().float().contiguous().flatten()
    out.write(struct.pack("<q", t.numel()))
    out.write(t.numpy().tobytes())

def leaf(*shape):
    return torch.randn(*shape).double().requires_grad_()

def case(inputs, result):
    d = torch.randn(*result.shape).double()
    result.backward(d)
    for t in inputs:
        put(t)
    put(result)
    put(d)
    for t in inputs:
        put(t.grad)

x, w = leaf(5, 40), leaf(40)
case([x, w], F.rms_norm(x, (40,), w, 1e-5))
x, w, b = leaf(5, 40), leaf(40), leaf(40)
case([x, w, b], F.layer_norm(x, (40,), w, b, 1e-5))
for act in (F.silu, lambda t: F.gelu(t, approximate="tanh"), F.gelu, F.relu):
    g, u = leaf(3, 50), leaf(3, 50)
    case([g, u], act(g) * u)
q, k, v = leaf(2, 4, 70, 16), leaf(2, 2, 70, 16), leaf(2, 2, 70, 16)
case([q, k, v], F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
x, w = leaf(9, 20), leaf(31, 20)
labels = torch.tensor([3, -100, 30, 0, 7, 7, -100, 12, 29])
case([x, w], F.cross_entropy(x @ w.T, labels, reduction="sum").reshape(1))

BASE = {"rope_theta": 10000.0}
KINDS = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
]
for kind in KINDS:
    config = LlamaConfig(hidden_size=64, num_attention_heads=2, max_position_embeddings=128,
                         rope_parameters={**BASE, **kind})
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(100)[None])
    put(cos[0, :, :16])
    put(sin[0, :, :16])
