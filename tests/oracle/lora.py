#!/usr/bin/env python3
"""Makes tests/model/lora: for each case a PEFT folder that a run starts from (start), its adapters after 50 fp32 AdamW steps of
PyTorch (end.safetensors), and the loss and gradient norm of each step (curve.txt). The base is a model of
tests/model/fixtures, the rows are those of tests/model/curve. tests/model/test_lora.c has the same table of cases.
Made with torch 2.15, transformers 5.23, peft 0.21.

    lora.py TESTS/model"""
import json, os, sys
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from peft.utils import get_peft_model_state_dict
from transformers import AutoModelForCausalLM

CASES = {
    "llama": ("llama", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "llama_qv": ("llama", dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    "qwen2": ("qwen2", dict(r=3, lora_alpha=6, target_modules=["k_proj", "up_proj", "down_proj"])),
    "qwen3": ("qwen3", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "gpt2": ("gpt2", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "mistral": ("mistral", dict(r=2, lora_alpha=4, target_modules=["o_proj", "gate_proj"],
                                modules_to_save=["model.norm", "lm_head"])),
}

root = sys.argv[1]
only = sys.argv[2:]
rows = [json.loads(line)["input_ids"] for line in open(root + "/curve/data.jsonl")]

def state(model):
    return {k: v.detach().clone().contiguous() for k, v in get_peft_model_state_dict(model).items()}

for name, (base, options) in CASES.items():
    if only and name not in only:
        continue
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(f"{root}/fixtures/{base}", dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=base == "gpt2", lora_dropout=0.0,
                                             **options))
    model.eval()
    at = f"{root}/lora/{name}"
    os.makedirs(at + "/start", exist_ok=True)
    model.save_pretrained(at + "/start")
    for extra in ("README.md",):
        if os.path.exists(f"{at}/start/{extra}"):
            os.remove(f"{at}/start/{extra}")
    trained = [p for p in model.parameters() if p.requires_grad]
    optim = torch.optim.AdamW(trained, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    lines = []
    for step in range(50):
        ids = torch.tensor([rows[(2 * step + i) % 32] for i in range(2)])
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optim.step()
        optim.zero_grad()
        lines.append(f"{loss.item():.9g} {norm.item():.9g}\n")
    with open(f"{at}/curve.txt", "w") as f:
        f.writelines(lines)
    save_file(state(model), f"{at}/end.safetensors")
    print(name, lines[0].strip(), lines[-1].strip())
