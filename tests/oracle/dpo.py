#!/usr/bin/env python3
"""Makes tests/model/lora/CASE/dpo.txt: loss, norm of the gradient, mean rewards of chosen and rejected rows, and
accuracy of 20 fp32 AdamW steps of TRL's DPOTrainer from the adapters in CASE/start. tests/model/test_lora.c makes the
same pairs. Made with torch 2.15, transformers 5.23, peft 0.21, trl 1.16.0.

    dpo.py TESTS/model [CASE...]"""
import json, os, sys, tempfile
import torch
from datasets import Dataset
from peft import LoraConfig, set_peft_model_state_dict
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

CASES = {"llama": "llama", "gpt2": "gpt2", "llama_dora": "llama"}
PROMPT, SHORT, STEPS, BETA = 8, 20, 20, 0.25

root = sys.argv[1]
only = sys.argv[2:]
rows = [json.loads(line)["input_ids"] for line in open(root + "/curve/data.jsonl")]

def pair(i):
    """The rejected answer is shorter."""
    chosen, rejected = rows[2 * i % 32], rows[(2 * i + 1) % 32]
    return {"prompt_ids": chosen[:PROMPT], "chosen_ids": chosen[PROMPT:], "rejected_ids": rejected[PROMPT:SHORT]}

class Trainer(DPOTrainer):
    def _prepare_dataset(self, dataset, *_):
        return dataset  # its rows are ids already

words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")),
                                pad_token="a", eos_token="b")
for name, base in CASES.items():
    if only and name not in only:
        continue
    at = f"{root}/lora/{name}"
    model = AutoModelForCausalLM.from_pretrained(f"{root}/fixtures/{base}", dtype=torch.float32)
    adapters = LoraConfig.from_pretrained(at + "/start")
    adapters.inference_mode = False
    with tempfile.TemporaryDirectory() as out:
        config = DPOConfig(output_dir=out, beta=BETA, use_cpu=True, bf16=False, report_to=[], max_length=None,
                           gradient_checkpointing=False, remove_unused_columns=False)
        trainer = Trainer(model=model, args=config, processing_class=words, peft_config=adapters,
                          train_dataset=Dataset.from_list([pair(i) for i in range(2)]))
    model = trainer.model
    set_peft_model_state_dict(model, load_file(at + "/start/adapter_model.safetensors"))
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optim = torch.optim.AdamW(trained, lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    lines = []
    for step in range(STEPS):
        batch = trainer.data_collator([pair(2 * step + i) for i in range(2)])
        trainer._metrics["train"].clear()
        loss = trainer.compute_loss(model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optim.step()
        optim.zero_grad()
        told = [trainer._metrics["train"]["rewards/" + key][0] for key in ("chosen", "rejected", "accuracies")]
        lines.append(f"{loss.item():.9g} {norm.item():.9g} {told[0]:.9g} {told[1]:.9g} {told[2]:.9g}\n")
    with open(f"{at}/dpo.txt", "w") as f:
        f.writelines(lines)
    print(name, lines[0].strip(), lines[-1].strip())
