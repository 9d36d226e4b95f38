#!/usr/bin/env python3
"""adapter_peer.py: trains CASE with PyTorch and PEFT's LoRA in memory. Needs the other peers' common.py in PYTHONPATH.
  adapter_peer.py CASE [--rank R] [--steps N] [--batch N] [--recompute]
The base is bf16, the adapters are fp32, and products run in bf16 (autocast)."""
import common
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


def main():
    a = common.arguments(lambda parser: parser.add_argument("--rank", type=int, default=16))
    base = AutoModelForCausalLM.from_pretrained(a.case + "/model", dtype=torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=a.rank, lora_alpha=2 * a.rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    if a.recompute:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    model.train()
    adapters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(adapters, lr=a.lr, weight_decay=a.weight_decay, fused=True)
    batches = common.micro_batches(a)

    def one_step():
        total, tokens = 0.0, 0
        for _ in range(a.accum):
            ids = next(batches)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            (loss / a.accum).backward()
            total += loss.item()
            tokens += ids.numel()
        norm = torch.nn.utils.clip_grad_norm_(adapters, a.clip if a.clip > 0 else float("inf"))
        optimizer.step()
        optimizer.zero_grad()
        return total / a.accum, norm.item(), tokens

    common.run(a, one_step)


if __name__ == "__main__":
    main()
