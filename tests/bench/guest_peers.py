#!/usr/bin/env python3
"""guest_peers.py: compares a PyTorch program that uses tide.AdamW with programs that use other optimizers, in turns.
  TIDE_LIBRARY=build/offload/api/libtide.so PYTHONPATH=tools/guest/pytorch PY tests/bench/guest_peers.py --case CASE --scratch DIR
      [--only NAMES] [--rounds N] [--steps N] [--clip C]
CASE contains `model` and `data.jsonl`, as bench_case makes them. The programs compute in bf16 and recompute activations:
  tide         bf16 weights, states on the drive (store) or in memory (host)
  torch        bf16 weights for the products, fp32 masters and torch.optim.AdamW(fused=True), in memory
  torch_plain  bf16 weights and torch.optim.AdamW(fused=True), without fp32 masters: less exact, and the least work
  deepspeed    ZeRO-3 with offload_optimizer to NVMe
  compute      bf16 weights, without an optimizer: the lower bound of a step
Prints `name value unit` lines: the median step without first steps, its processor time, and the process's peak memory."""
import argparse
import functools
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import time

from turns import alternate

COMPARISONS = {"deepspeed": ("tide_store", "deepspeed"), "torch": ("tide_store", "torch"), "plain": ("tide_store", "torch_plain"),
               "host": ("tide_host", "torch"), "compute": ("tide_store", "compute")}


def batches(a):
    import torch
    with open(a.case + "/data.jsonl") as file:
        rows = [json.loads(line)["input_ids"] for line in file]
    at = 0
    while True:
        yield torch.tensor([rows[(at + i) % len(rows)] for i in range(a.batch)])
        at += a.batch


def load(a):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(a.case + "/model", dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def tide_side(a, scratch):
    import tide
    model = load(a)
    store = {"store": scratch, "states": "store", "host_memory": a.host_memory} if a.side == "tide_store" else {"states": "host"}
    optimizer = tide.AdamW(model.named_parameters(), lr=1e-4, weight_decay=0.01, clip=a.clip, **store)
    optimizer.attach(model)

    def step(ids):
        loss = loss_of(model, ids)
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def torch_side(a, _scratch):
    import torch
    model = load(a)
    weights = list(model.parameters())
    masters = [torch.nn.Parameter(w.detach().float()) for w in weights] if a.side == "torch" else weights
    optimizer = torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.01, fused=True)

    def step(ids):
        loss = loss_of(model, ids)
        loss.backward()
        if masters is not weights:
            for master, weight in zip(masters, weights):
                master.grad, weight.grad = weight.grad.float(), None
        if a.clip > 0:
            torch.nn.utils.clip_grad_norm_(masters, a.clip)
        optimizer.step()
        optimizer.zero_grad()
        if masters is not weights:
            with torch.no_grad():
                torch._foreach_copy_(weights, masters)
        return loss.item()
    return step


def compute_side(a, _scratch):
    model = load(a)

    def step(ids):
        loss = loss_of(model, ids)
        loss.backward()
        model.zero_grad()
        return loss.item()
    return step


def deepspeed_side(a, scratch):
    for key, value in dict(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29513").items():
        os.environ.setdefault(key, value)
    import deepspeed
    logging.disable(logging.WARNING)
    options = {
        "train_micro_batch_size_per_gpu": a.batch, "gradient_clipping": a.clip, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
        "zero_optimization": {"stage": 3, "sub_group_size": int(1e8), "offload_optimizer": {
            "device": "nvme", "nvme_path": scratch, "pin_memory": False, "buffer_count": 8,
            "pipeline_read": True, "pipeline_write": True}},
        "aio": {"block_size": 1048576, "queue_depth": 32, "single_submit": False, "overlap_events": True},
    }
    model = load(a)
    engine, *_ = deepspeed.initialize(model=model, config=options, model_parameters=model.parameters())

    def step(ids):
        loss = loss_of(engine, ids)
        engine.backward(loss)
        engine.step()
        return loss.item()
    return step


SIDES = {"tide_store": tide_side, "tide_host": tide_side, "torch": torch_side, "torch_plain": torch_side, "deepspeed": deepspeed_side,
         "compute": compute_side}


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run_side(a):
    step = SIDES[a.side](a, a.scratch)
    rows = batches(a)
    seconds, processor, losses = [], [], []
    for _ in range(a.steps):
        ids = next(rows)
        begin, used = time.perf_counter(), processor_seconds()
        losses.append(step(ids))
        seconds.append(time.perf_counter() - begin)
        processor.append(processor_seconds() - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"step": statistics.median(seconds[1:]), "processor": statistics.median(processor[1:]), "peak": peak, "loss": losses[-1], "steps": seconds}), flush=True)


def turn(a, side, scratch):
    command = [sys.executable, __file__, "--side", side, "--case", a.case, "--scratch", scratch, "--steps", str(a.steps), "--batch",
               str(a.batch), "--clip", str(a.clip), "--host-memory", a.host_memory]
    env = dict(os.environ, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"# {side}: {result}", flush=True)
    return result


def compare(a, name):
    results = alternate(a, {side: functools.partial(turn, a, side) for side in COMPARISONS[name]})
    (ours, theirs) = ([statistics.median(run["step"] for run in runs), max(run["peak"] for run in runs),
                       statistics.median(run["processor"] for run in runs)] for runs in results.values())
    print(f"guest_{name}_tide_step {ours[0]:.4f} s\nguest_{name}_peer_step {theirs[0]:.4f} s\nguest_{name}_speed {theirs[0] / ours[0]:.3f} x\n"
          f"guest_{name}_tide_processor {ours[2]:.3f} s\nguest_{name}_peer_processor {theirs[2]:.3f} s\n"
          f"guest_{name}_tide_peak {ours[1]:.3f} GB\nguest_{name}_peer_peak {theirs[1]:.3f} GB\n"
          f"guest_{name}_memory {ours[1] / theirs[1]:.3f} x", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", required=True)
    p.add_argument("--scratch", required=True)
    p.add_argument("--only", default=",".join(COMPARISONS), help="names, with commas: " + ", ".join(COMPARISONS))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--host-memory", default="64MiB", help="of tide.AdamW with states on the drive [64MiB]")
    p.add_argument("--rest", type=float, default=5, help="seconds to wait after each turn, for a drive that discards [5]")
    p.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.side:
        run_side(a)
        return
    os.makedirs(a.scratch, exist_ok=True)
    for name in a.only.split(","):
        compare(a, name)


if __name__ == "__main__":
    main()
