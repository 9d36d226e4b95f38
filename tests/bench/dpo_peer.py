#!/usr/bin/env python3
"""dpo_peer.py: trains CASE with TRL's DPOTrainer and PEFT's LoRA in memory. Needs the other peers' common.py in PYTHONPATH. A batch has N pairs.
  dpo_peer.py make CASE OUT [--pairs N]    OUT/model: CASE's model with a tokenizer whose tokens are bytes; OUT/data.jsonl: pairs of 512 tokens a row
  dpo_peer.py OUT [--rank R] [--steps N] [--batch N] [--recompute] [--fp32]
The base is bf16, the adapters are fp32, and products run in bf16 (autocast) or, with --fp32, all is fp32. The reference is the base without adapters."""
import json
import os
import random
import string
import sys
import tempfile

PROMPT, ANSWER = 256, 255  # bytes; a token ends the answer
END = "</s>"


def make(case, out, pairs=64):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    os.makedirs(out + "/model")
    for name in os.listdir(case + "/model"):
        if not name.startswith("tokenizer"):
            os.link(os.path.join(case, "model", name), os.path.join(out, "model", name))
    tokens = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    tokenizer.save(out + "/model/tokenizer.json")
    with open(out + "/model/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END}, file)
    rng = random.Random(1)

    def text(length):
        return "".join(rng.choices(string.ascii_letters, k=length))

    with open(out + "/data.jsonl", "w") as file:
        for _ in range(pairs):
            # The two answers begin differently.
            row = {"prompt": text(PROMPT - 1) + ":", "chosen": "a" + text(ANSWER - 1), "rejected": "b" + text(ANSWER - 1)}
            file.write(json.dumps(row) + "\n")


def train():
    import common
    import torch
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    def flags(parser):
        parser.add_argument("--rank", type=int, default=16)
        parser.add_argument("--fp32", action="store_true")

    a = common.arguments(flags)
    base = AutoModelForCausalLM.from_pretrained(a.case + "/model", dtype=torch.float32 if a.fp32 else torch.bfloat16)
    adapters = LoraConfig(r=a.rank, lora_alpha=2 * a.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with tempfile.TemporaryDirectory() as out:
        options = DPOConfig(output_dir=out, use_cpu=True, bf16=False, report_to=[], max_length=None, gradient_checkpointing=a.recompute,
                            per_device_train_batch_size=a.batch)
        trainer = DPOTrainer(model=base, args=options, processing_class=AutoTokenizer.from_pretrained(a.case + "/model"), peft_config=adapters,
                             train_dataset=load_dataset("json", data_files=a.case + "/data.jsonl", split="train"))
    model = trainer.model
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.data = p.data.float()
    optimizer = torch.optim.AdamW(trained, lr=a.lr, weight_decay=a.weight_decay, fused=True)
    rows = list(trainer.train_dataset)
    at = 0

    def one_step():
        nonlocal at
        total, tokens = 0.0, 0
        for _ in range(a.accum):
            batch = trainer.data_collator([rows[(at + i) % len(rows)] for i in range(a.batch)])
            at += a.batch
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not a.fp32):
                loss = trainer.compute_loss(model, batch)
            (loss / a.accum).backward()
            total += loss.item()
            tokens += batch["input_ids"].numel()
        norm = torch.nn.utils.clip_grad_norm_(trained, a.clip if a.clip > 0 else float("inf"))
        optimizer.step()
        optimizer.zero_grad()
        return total / a.accum, norm.item(), tokens

    common.run(a, one_step)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], int(sys.argv[5]) if len(sys.argv) > 5 else 64)
    else:
        train()
