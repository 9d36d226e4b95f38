#!/usr/bin/env python3
"""Compares the logits of a folder that tide wrote with those of the original, in transformers.

    model_folder.py WRITTEN ORIGINAL IDS.json [LOGITS.safetensors]

Prints the largest difference, relative to the largest logit, and checks that other files were copied. LOGITS has
tide's own logits [rows][length][vocab] in fp32, which are compared, too."""
import json, os, sys
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

written, original, ids = sys.argv[1], sys.argv[2], torch.tensor(json.load(open(sys.argv[3])))
skipped = (".safetensors", ".safetensors.index.json", "config.json")
for name in os.listdir(original):
    if not name.endswith(skipped) or name == "generation_config.json":
        assert open(f"{written}/{name}", "rb").read() == open(f"{original}/{name}", "rb").read(), name
tensors = 0
for name in os.listdir(written):
    if name.endswith(".safetensors"):
        with safe_open(f"{written}/{name}", "pt") as f:
            tensors += len([f.get_tensor(k) for k in f.keys()])

def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()(input_ids=ids, use_cache=False).logits.detach()

a, b = logits(written), logits(original)
print("tensors", tensors, "logits_apart", float((a - b).abs().max() / b.abs().max()))
if len(sys.argv) > 4:
    with safe_open(sys.argv[4], "pt") as f:
        ours = f.get_tensor("logits").float()
    print("tide_apart", float((ours - a).norm() / a.norm()))
