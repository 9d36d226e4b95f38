#!/usr/bin/env python3
"""Writes tests/finetune/schedules.txt: the learning rate (or the first beta, where a cycle moves it) of each update as DeepSpeed's and transformers'
schedulers set it.

    python tests/oracle/schedules.py tests/finetune/schedules.txt     needs torch, transformers, deepspeed

One line per case: kind and parameters as `name=value`, then "=" and the rates as hexadecimal doubles."""
import sys
import warnings

import torch
import transformers as tf
from deepspeed.runtime import lr_schedules as ds

warnings.simplefilter("ignore")
ds.logger.disabled = True
OUT = open(sys.argv[1], "w")  # not standard output, because DeepSpeed prints there


def optimizer(lr):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def rates(scheduler, opt, count, beta=False):
    out = []
    for _ in range(count):
        group = opt.param_groups[0]
        assert not beta or group["betas"][1] == 0.99
        out.append(float(group["betas"][0] if beta else group["lr"]))
        opt.step()
        scheduler.step()
    return out


def case(kind, count, scheduler, opt, **names):
    words = " ".join(f"{k}={float(v).hex()}" for k, v in names.items())
    out = rates(scheduler, opt, count, names.get("moves_beta", False))
    print(f"{kind} {words} =", " ".join(r.hex() for r in out), file=OUT)


def theirs():
    for lr, total, warmup in ((5e-5, 40, 0), (1e-3, 37, 7), (0.3, 12, 12), (2e-4, 9, 20)):
        n = total + 3
        o = optimizer(lr)
        case("constant", n, tf.get_constant_schedule_with_warmup(o, warmup), o, lr=lr, total=total, warmup=warmup)
        o = optimizer(lr)
        case("linear", n, tf.get_linear_schedule_with_warmup(o, warmup, total), o, lr=lr, total=total, warmup=warmup)
        o = optimizer(lr)
        case("cosine", n, tf.get_cosine_schedule_with_warmup(o, warmup, total), o, lr=lr, total=total, warmup=warmup)
    for lr, total, warmup, decay in ((1e-3, 40, 5, 8), (3e-4, 40, 0, 4), (0.1, 10, 3, 7)):
        o = optimizer(lr)
        case("wsd", total + 3, tf.get_wsd_schedule(o, warmup, decay, num_training_steps=total), o, lr=lr, total=total,
             warmup=warmup, decay=decay)


def deepspeeds():
    for low, steps, rate, stairs in ((1e-3, 7, 1.0, False), (3e-5, 5, 0.7, True), (1e-3, 2000, 1.0, False)):
        o = optimizer(1.0)
        case("LRRangeTest", 40, ds.LRRangeTest(o, low, steps, rate, stairs), o, lr=low, range_steps=steps,
             range_rate=rate, range_staircase=stairs)
    for low, high, first, second, stairs, more, every, decay in (
            (1e-4, 1e-2, 10, None, 0, None, 0, 0.0), (1e-4, 1e-2, 7, 12, 0, None, 3, 0.5), (0.0, 3e-3, 9, 6, 3, None, 4, 0.1),
            (1e-5, 1e-3, 11, 7, 4, 2, 0, 0.3), (2e-4, 0.1, 5, 3, 0, 2, 2, 0.0)):
        o = optimizer(1.0)
        s = ds.OneCycle(o, low, high, decay, first, second, stairs, more, every, cycle_momentum=False)
        case("OneCycle", 50, s, o, min_lr=low, max_lr=high, first_steps=first, second_steps=second or first,
             first_stairs=stairs, second_stairs=stairs if more is None else more, decay_steps=every, decay_rate=decay)
    for low, high, first, second, stairs, more, every, decay in (
            (0.8, 0.9, 10, None, 0, None, 0, 0.0), (0.85, 0.95, 7, 12, 0, None, 3, 0.001), (0.0, 0.5, 9, 6, 3, None, 4, 0.01),
            (0.6, 0.9, 11, 7, 4, 2, 0, 0.3), (0.7, 0.7, 5, 3, 0, 2, 2, 0.0)):
        o = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0, betas=(0.5, 0.6))
        s = ds.OneCycle(o, 1e-4, 1e-2, 0.0, first, second, stairs, more, every, True, low, high, decay)
        case("OneCycle", 50, s, o, first_steps=first, second_steps=second or first, first_stairs=stairs,
             second_stairs=stairs if more is None else more, decay_steps=every, moves_beta=True, min_beta=low, max_beta=high,
             beta_decay_rate=decay)
    for low, high, warmup, kind in ((0.0, 1e-3, 10, "log"), (1e-5, 3e-4, 6, "linear"), (1e-4, 2e-4, 1, "log"),
                                    (0.0, 5e-5, 2, "linear")):
        o = optimizer(1.0)
        names = dict(min_lr=low, lr=high, warmup=warmup, log_warmup=kind == "log")
        case("WarmupLR", 20, ds.WarmupLR(o, low, high, warmup, kind), o, **names)
        for total in (30, 12, 4):
            o = optimizer(1.0)
            case("WarmupDecayLR", 33, ds.WarmupDecayLR(o, total, low, high, warmup, kind), o, total=total, **names)
    for lr, total, low, warmup, end, kind in ((1e-3, 30, 0.0, 10, 1e-4, "log"), (3e-4, 25, 0.1, 5, 0.01, "linear"),
                                              (1e-2, 4, 0.0, 8, 0.0, "log"), (0.5, 20, 0.3, 1, 0.2, "linear")):
        o = optimizer(lr)
        case("WarmupCosineLR", 34, ds.WarmupCosineLR(o, total, low, warmup, end, kind), o, lr=lr, total=total,
             warmup_min_ratio=low, warmup=warmup, cos_min_ratio=end, log_warmup=kind == "log")


theirs()
deepspeeds()
OUT.close()
