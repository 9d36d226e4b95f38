#!/usr/bin/env python3
"""Compares `tide finetune` with PyTorch and transformers:

    python tests/oracle/finetune.py build/tools/tide [FLAG...]     needs torch, transformers, safetensors

Both train the same model on the same rows. Compares the losses and gradient norms of the steps, and the results
of transformers with the folder that tide wrote. Prints one line per case: the largest relative differences."""
import json, os, random, subprocess, sys, tempfile
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config

VOCAB, LENGTH, ROWS, BATCH, ACCUM, STEPS, LR = 320, 48, 26, 3, 2, 8, 1e-3
COMMON = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              vocab_size=VOCAB, max_position_embeddings=64)
CASES = {
    "llama": lambda: LlamaConfig(**COMMON),
    "llama_tied": lambda: LlamaConfig(**COMMON, tie_word_embeddings=True),
    "gpt2": lambda: GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=64, vocab_size=VOCAB, resid_pdrop=0.0,
                               embd_pdrop=0.0, attn_pdrop=0.0),
    "qwen3_tied": lambda: Qwen3Config(**COMMON, head_dim=32, tie_word_embeddings=True),
}
BOUNDS = {"fp32": (1e-5, 1e-4, 1e-5, 1e-4), "bf16": (2e-3, 3e-2, 5e-3, None)}


def write_rows(path):
    rng = random.Random(1)
    grams = [[rng.randrange(VOCAB) for _ in range(rng.randint(3, 9))] for _ in range(16)]
    with open(path, "w") as f:
        for _ in range(ROWS):
            ids = []
            while len(ids) < LENGTH:
                ids += rng.choice(grams)
            ids = ids[:rng.randint(LENGTH // 2, LENGTH)]
            labels = [-100] * 4 + ids[4:]
            f.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
    return [json.loads(line) for line in open(path)]


def micro_batches(rows):
    """Batches in file order; the last ones of an epoch may be smaller."""
    while True:
        for at in range(0, len(rows), BATCH * ACCUM):
            step = rows[at:at + BATCH * ACCUM]
            yield [step[i:i + BATCH] for i in range(0, len(step), BATCH)]


def loss_sum(model, rows):
    longest = max(len(r["input_ids"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [0] * (longest - len(r["input_ids"])) for r in rows])
    labels = torch.tensor([r["labels"] + [-100] * (longest - len(r["labels"])) for r in rows])
    logits = model(input_ids=ids, use_cache=False).logits.float()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), labels[:, 1:].reshape(-1),
                                             reduction="sum", ignore_index=-100)
    return loss, int((labels[:, 1:] != -100).sum())


def train(folder, rows, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).train()
    work = list(model.parameters())
    master = [torch.nn.Parameter(w.detach().float()) for w in work]
    optim = torch.optim.AdamW(master, lr=LR, weight_decay=0.0)
    figures = []
    for _, step in zip(range(STEPS), micro_batches(rows)):
        targets = sum(sum(label != -100 for label in r["labels"][1:]) for batch in step for r in batch)
        total = 0.0
        for batch in step:
            loss, _ = loss_sum(model, batch)
            (loss / targets).backward()
            total += loss.item() / targets
        for m, w in zip(master, work):
            m.grad, w.grad = w.grad.float(), None
        norm = torch.nn.utils.clip_grad_norm_(master, 1.0)
        optim.step()
        with torch.no_grad():
            for m, w in zip(master, work):
                w.copy_(m)
        figures.append((total, norm.item()))
    return model, figures


def apart(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def one(tide, flags, name, precision, directory):
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    torch.manual_seed(3)
    folder, out, log = (f"{directory}/{name}_{precision}_{what}" for what in ("model", "out", "log"))
    AutoModelForCausalLM.from_config(CASES[name]()).to(dtype).save_pretrained(folder)
    rows = write_rows(f"{directory}/rows.jsonl")
    subprocess.run([tide, "finetune", "--model", folder, "--data", f"{directory}/rows.jsonl", "--out", out, "--log", log,
                    "--steps", str(STEPS), "--batch", str(BATCH), "--accum", str(ACCUM), "--lr", str(LR), "--precision",
                    precision, "--eval-data", f"{directory}/rows.jsonl", "-q", *flags], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(log)][:-1]
    model, figures = train(folder, rows, dtype)
    ours = AutoModelForCausalLM.from_pretrained(out, dtype=dtype).eval()
    with torch.no_grad():
        loss, targets = loss_sum(ours, rows)
        ids = torch.tensor([r["input_ids"][:LENGTH // 2] for r in rows])
        a, b = (m.eval()(input_ids=ids, use_cache=False).logits.float() for m in (ours, model))
    found = (apart([s["loss"] for s in lines], [f[0] for f in figures]),
             apart([s["grad_norm"] for s in lines], [f[1] for f in figures]),
             abs(lines[-1]["eval_loss"] - loss.item() / targets) / (loss.item() / targets),
             float((a - b).norm() / b.norm()))
    right = all(bound is None or value <= bound for value, bound in zip(found, BOUNDS[precision]))
    print(f"{name:12s} {precision}  loss {found[0]:.1e}  norm {found[1]:.1e}  eval {found[2]:.1e}  logits {found[3]:.1e}  "
          f"{'ok' if right else 'TOO FAR: ' + str(BOUNDS[precision])}")
    return right


with tempfile.TemporaryDirectory() as directory:
    done = [one(os.path.abspath(sys.argv[1]), sys.argv[2:], name, precision, directory)
            for precision in BOUNDS for name in CASES]
sys.exit(0 if all(done) else 1)
