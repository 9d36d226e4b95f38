#!/usr/bin/env python3
"""torch_card_step.py: times training steps of torch on a GPU, for comparison with `tide finetune --dev cuda`.
  torch_card_step.py CASE [--rows N] [--length N] [--steps N] [--keep] [--compile]
CASE contains `model`, as bench_case makes it. Weights, gradients and AdamW's moments are fp32, and layers compute in bf16 (autocast):
16 bytes per parameter, as exact as tide's 14. Layers are recomputed unless --keep is given. Prints each step and, last,
`torch_step_tokens N token/s`, the median without the first step."""
import argparse
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("case")
    p.add_argument("--rows", type=int, default=8)
    p.add_argument("--length", type=int, default=4096)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--keep", action="store_true")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(a.case + "/model", attn_implementation="sdpa")
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.train()
    if not a.keep:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    run = torch.compile(model) if a.compile else model
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(config.vocab_size, (a.rows, a.length), device="cuda")
    seconds = []
    for step in range(a.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        print(f"# step {step + 1}: loss {loss.item():.4f}, {seconds[-1]:.3f} s", flush=True)
    tokens = a.rows * a.length / statistics.median(seconds[1:])
    print(f"torch_step_tokens {tokens:.0f} token/s\ntorch_step_peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


main()
