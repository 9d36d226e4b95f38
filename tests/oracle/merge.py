#!/usr/bin/env python3
"""Makes tests/model/merge: for each case a PEFT folder with random adapters, and merged.safetensors, the weights
after PEFT's merge_and_unload. tests/api/test_merge.c has the same table of cases. Made with torch 2.15,
transformers 5.23, peft 0.21.

    merge.py TESTS/model"""
import os, sys
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

CASES = {
    "llama": ("llama", torch.float32, dict(r=4, lora_alpha=3, target_modules="all-linear", use_rslora=True)),
    "gpt2": ("gpt2", torch.float32, dict(r=2, lora_alpha=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    "qwen2": ("qwen2", torch.bfloat16, dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "qwen3": ("qwen3", torch.bfloat16, dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], use_dora=True)),
    "mistral": ("mistral", torch.float32, dict(r=2, lora_alpha=4, target_modules=["o_proj"],
                                               modules_to_save=["model.norm", "lm_head"])),
}

root = sys.argv[1]
for name, (base, dtype, options) in CASES.items():
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_pretrained(f"{root}/fixtures/{base}", dtype=dtype)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))
    for key, p in model.named_parameters():
        if p.requires_grad:
            p.data += torch.randn_like(p) * 0.05
    at = f"{root}/merge/{name}"
    os.makedirs(at, exist_ok=True)
    model.save_pretrained(at)
    if os.path.exists(f"{at}/README.md"):
        os.remove(f"{at}/README.md")
    merged = model.merge_and_unload()
    tied = merged.config.tie_word_embeddings
    save_file({k: v.detach().clone().contiguous() for k, v in merged.state_dict().items()
               if not (tied and k == "lm_head.weight")}, f"{at}/merged.safetensors")
    print(name, sum(v.numel() for v in merged.state_dict().values()))
