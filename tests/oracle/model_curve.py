#!/usr/bin/env python3
"""Makes tests/model/curve: rows of token ids, and the loss and gradient norm of each of 50 fp32 AdamW steps of
PyTorch on them, starting from the weights of fixtures (tests/model/fixtures/llama, gpt2 and qwen3).

    model_curve.py TESTS/model"""
import json, os, random, sys
import torch
from transformers import AutoModelForCausalLM

root = sys.argv[1]
rng = random.Random(5)
grams = [[rng.randrange(72) for _ in range(rng.randint(3, 7))] for _ in range(12)]
rows = []
for _ in range(32):
    ids = []
    while len(ids) < 24:
        ids += rng.choice(grams)
    rows.append(ids[:24])
os.makedirs(root + "/curve", exist_ok=True)
with open(root + "/curve/data.jsonl", "w") as f:
    for ids in rows:
        f.write(json.dumps({"input_ids": ids}) + "\n")
for name in ("llama", "gpt2", "qwen3"):
    model = AutoModelForCausalLM.from_pretrained(f"{root}/fixtures/{name}", dtype=torch.float32)
    model.eval()  # no dropout
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    lines = []
    for step in range(50):
        ids = torch.tensor([rows[(2 * step + i) % 32] for i in range(2)])
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
        lines.append(f"{loss.item():.9g} {norm.item():.9g}\n")
    with open(f"{root}/curve/{name}.txt", "w") as f:
        f.writelines(lines)
    print(name, lines[0].strip(), lines[-1].strip())
