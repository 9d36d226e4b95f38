#!/usr/bin/env python3
"""Writes tests/fixtures/loss_scale.txt for test_run_scale: the loss scales of DeepSpeed's DynamicLossScaler over
sequences of steps that overflow (1) or do not (0).

    python tests/oracle/loss_scale.py > tests/fixtures/loss_scale.txt     needs deepspeed and torch
"""
import logging

logging.disable(logging.CRITICAL)
import deepspeed
from deepspeed.runtime.fp16 import loss_scaler

loss_scaler.dist = type("one_rank", (), {"get_rank": staticmethod(lambda: 0)})

# first, least, window, hysteresis, consecutive
SETTINGS = [
    (65536, 1, 1000, 2, 0),
    (65536, 1, 4, 2, 0),
    (65536, 1, 4, 2, 1),
    (256, 1, 1, 1, 0),
    (256, 16, 3, 1, 0),
    (256, 16, 3, 3, 0),
    (256, 16, 3, 3, 1),
    (4096, 0.25, 2, 2, 0),
    (48, 10, 5, 1, 0),
]


def numbers():
    """x >> 8 of x = 1664525 x + 1013904223 mod 2^32, from x = 1."""
    x = 1
    while True:
        x = (x * 1664525 + 1013904223) % 2**32
        yield x >> 8


draw = numbers()


def pattern(one_in, count):
    return [1 if next(draw) % one_in == 0 else 0 for _ in range(count)]


print("# DeepSpeed", deepspeed.__version__, "by tests/oracle/loss_scale.py:")
print("# first least window hysteresis consecutive overflows, then the scale after each step;")
print("# 'end': DeepSpeed ended the run there")
for setting in SETTINGS:
    first, least, window, hysteresis, consecutive = setting
    rows = [[0] * 24, [1] * 24, [1, 0] * 12, [0, 0, 0, 1] * 6, [1, 1, 0, 0, 0, 0] * 4]
    rows += [pattern(3, 40), pattern(6, 60), pattern(12, 80)]
    if window == 1000:
        rows = [[0] * 1001 + [1] * 3 + [0] * 1002, [1] + [0] * 1001 + [1] * 2 + [0] * 3]
    for row in rows:
        scaler = loss_scaler.DynamicLossScaler(init_scale=first, scale_window=window,
                                               min_scale=least, delayed_shift=hysteresis,
                                               consecutive_hysteresis=bool(consecutive))
        scales = []
        for overflow in row:
            try:
                scaler.update_scale(bool(overflow))
            except Exception:
                scales.append("end")
                break
            scales.append(f"{scaler.cur_scale:.17g}")
        runs = []  # lengths of equal scales: "65536*3"
        for scale in scales:
            if runs and runs[-1][0] == scale:
                runs[-1][1] += 1
            else:
                runs.append([scale, 1])
        print(first, least, window, hysteresis, consecutive, "".join(map(str, row)),
              " ".join(f"{scale}*{count}" for scale, count in runs))
