#!/usr/bin/env python3
"""Writes tests/fixtures/adam.txt: the weights of torch and DeepSpeed after 1,000 steps on gradients that
test_adam_oracle computes by the same integer recurrence.

    python tests/oracle/adam.py > tests/fixtures/adam.txt     needs torch, numpy and deepspeed
"""
import numpy as np
import torch
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.ops.lion import DeepSpeedCPULion

COUNT, STEPS = 64, 1000


def numbers():
    """(x >> 8) / 2^24 - 1/2 of x = 1664525 x + 1013904223 mod 2^32, from x = 1: exact in fp32."""
    x = 1
    while True:
        x = (x * 1664525 + 1013904223) % 2**32
        yield (x >> 8) / 2.0**24 - 0.5


def inputs():
    draw = numbers()
    start = np.array([next(draw) for _ in range(COUNT)], dtype=np.float32)
    scale = np.array([2.0 ** -(i % 8) for i in range(COUNT)])
    steps = [(np.array([next(draw) for _ in range(COUNT)]) * scale).astype(np.float32)
             for _ in range(STEPS)]
    return start, steps


START, GRADIENTS = inputs()

# name, our rule, lr, beta1, beta2, eps, decay, bias correction, constructor of theirs
CASES = [
    # 1 - lr * weight_decay is exact in fp32 in the first case; torch rounds it in the second.
    ("torch_adamw", "adamw", 2**-10, 0.9, 0.999, 1e-8, 2**-7, 1,
     lambda p: torch.optim.AdamW(p, lr=2**-10, betas=(0.9, 0.999), eps=1e-8, weight_decay=2**-7)),
    ("torch_adamw_rounded", "adamw", 1e-3, 0.9, 0.999, 1e-8, 0.01, 1,
     lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    # The second case in float64.
    ("torch64_adamw", "adamw", 1e-3, 0.9, 0.999, 1e-8, 0.01, 1,
     lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    ("torch_adam", "adam", 1e-3, 0.9, 0.95, 1e-6, 0.1, 1,
     lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)),
    ("torch_adagrad", "adagrad", 1e-2, 0.0, 0.0, 1e-10, 0.01, 0,
     lambda p: torch.optim.Adagrad(p, lr=1e-2, eps=1e-10, weight_decay=0.01)),
    ("torch_sgd", "sgd", 1e-2, 0.9, 0.0, 0.0, 0.01, 0,
     lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.01)),
    ("deepspeed_adamw", "adamw", 1e-3, 0.9, 0.999, 1e-8, 0.01, 1,
     lambda p: DeepSpeedCPUAdam(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
                                adamw_mode=True)),
    ("deepspeed_adam", "adam", 1e-3, 0.9, 0.999, 1e-8, 0.01, 1,
     lambda p: DeepSpeedCPUAdam(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
                                adamw_mode=False)),
    ("deepspeed_adamw_plain", "adamw", 1e-3, 0.9, 0.999, 1e-8, 0.01, 0,
     lambda p: DeepSpeedCPUAdam(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
                                bias_correction=False, adamw_mode=True)),
    ("deepspeed_lion", "lion", 1e-4, 0.9, 0.99, 0.0, 0.1, 0,
     lambda p: DeepSpeedCPULion(p, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)),
    ("deepspeed_adagrad", "adagrad", 1e-2, 0.0, 0.0, 1e-10, 0.01, 0,
     lambda p: DeepSpeedCPUAdagrad(p, lr=1e-2, eps=1e-10, weight_decay=0.01)),
]


def run(make, dtype):
    p = torch.nn.Parameter(torch.from_numpy(START.astype(dtype)))
    optimizer = make([p])
    for gradient in GRADIENTS:
        p.grad = torch.from_numpy(gradient.astype(dtype))
        optimizer.step()
    return p.detach().numpy()


for name, rule, lr, beta1, beta2, eps, decay, bias, make in CASES:
    print(name, rule, lr, beta1, beta2, eps, decay, bias)
    print(" ".join(float(x).hex() for x in run(make, np.float64 if "64" in name else np.float32)))
