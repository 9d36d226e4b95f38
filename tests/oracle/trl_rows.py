"""Compares the ids, labels and packed rows that TRL makes from rows with tide's.

    python tests/oracle/trl_rows.py BUILD FIXTURES [SEED]      needs trl and datasets beside transformers
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import types

from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
          "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
          "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
LLAMA = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
         "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' + m.content + eos_token }}{% endgeneration %}"
         "{% else %}{{ m.content }}{% endif %}{% endfor %}")
MODELS = {  # fixture: (template, special tokens)
    "qwen2": (CHATML, {"eos_token": "<|im_end|>"}),
    "llama3": (CHATML, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "llama2": (LLAMA, {"bos_token": "<s>", "eos_token": "</s>"}),
    "tekken": (LLAMA, {"bos_token": "<s>", "eos_token": "</s>"}),
    "mistral": (LLAMA, {"bos_token": "<s>", "eos_token": "</s>"}),
}


def words(rng, n):
    stock = ["the", "cat", "über", "naïve", "x1", "42", "的一是", "😀", "don't", "\n", "  ", "Hello,", "world!", "é"]
    return " ".join(rng.choice(stock) for _ in range(n))


def rows_of(kind, rng, count, wild):
    out = []
    for _ in range(count):
        most = rng.choice((12, 12, 12, 80)) if wild else 12
        u = lambda: {"role": "user", "content": words(rng, rng.randrange(1, most))}
        a = lambda: {"role": "assistant", "content": words(rng, rng.randrange(1, most)) + "."}
        first = [{"role": "system", "content": words(rng, rng.randrange(1, most))}] if wild and rng.random() < 0.3 else []
        if kind == "text":
            out.append({"text": words(rng, rng.randrange(2, 60))})
        elif kind == "completion":
            out.append({"prompt": words(rng, rng.randrange(1, 20)), "completion": " " + words(rng, rng.randrange(1, 20))})
        elif kind == "messages":
            out.append({"messages": first + [m for _ in range(rng.randrange(1, 9 if wild else 4)) for m in (u(), a())]})
        else:
            turns = [m for _ in range(rng.randrange(0, 3) if wild else 0) for m in (u(), a())]
            out.append({"prompt": first + turns + [u()], "completion": [a()]})
    return out


def without_tail(tokenizer, row):
    """Returns the labels without those of white space at a document's end, on which only TRL trains."""
    labels, end = list(row["labels"]), 0
    for length in row.get("seq_lengths") or [len(labels)]:
        end += length
        for i in range(end - 1, end - length - 1, -1):
            if tokenizer.decode(row["input_ids"][i:i + 1]).strip() != "":
                break
            labels[i] = -100
    return labels


def theirs(tokenizer, kind, rows, length, packing):
    args = SFTConfig(output_dir=tempfile.mkdtemp(), max_length=length, packing=packing, report_to=[],
                     assistant_only_loss=kind == "messages", bf16=False, use_cpu=True)
    me = types.SimpleNamespace(_tokenizer=tokenizer, chat_template=tokenizer.chat_template,
                               completion_only_loss=kind in ("completion", "chat_completion"),
                               _signature_columns=None, args=args)
    data = SFTTrainer._prepare_dataset(me, Dataset.from_list(rows), tokenizer, args, packing, None, "train")
    if kind == "chat_completion":
        data = [dict(r, labels=without_tail(tokenizer, r)) for r in data]
    return [{"ids": r["input_ids"], "labels": r["labels"], "lengths": r.get("seq_lengths")} for r in data]


def ours(build, model, rows, length, packing):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps(r) + "\n" for r in rows))
        f.flush()
        run = subprocess.run([os.path.join(build, "tests/text/print_batches"), model, f.name, str(length),
                              "1" if packing else "0"], capture_output=True, text=True)
        if run.returncode != 0 and "nothing is left to train on" not in run.stderr:
            sys.exit(run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]


def predicted(row):
    """The labels without the first of a document, which is not predicted."""
    labels = list(row["labels"])
    at = 0
    for n in row["lengths"] or [len(labels)]:
        labels[at] = -100
        at += n
    return labels


def main(build, fixtures, seed=""):
    wrong = total = 0
    for name, (template, special) in MODELS.items():
        folder = tempfile.mkdtemp()
        shutil.copy(os.path.join(fixtures, name + ".json"), os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump(dict(special, chat_template=template), f)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), **special)
        tokenizer.chat_template = template
        for kind in ("text", "completion", "messages", "chat_completion"):
            rng = random.Random(name + kind + seed)
            rows = rows_of(kind, rng, 1500, seed != "")
            lengths = (4096, rng.randrange(8, 400), rng.randrange(32, 1000)) if seed else (4096, 40, 128)
            for length, packing in zip(lengths, (False, False, True)):
                if packing:  # tide does not pack documents without trained tokens
                    rows = [r for r, w in zip(rows, theirs(tokenizer, kind, rows, 10**6, False))
                            if any(x != -100 for x in w["labels"][1:length])]
                want = theirs(tokenizer, kind, rows, length, packing)
                want = [w for w in want if any(x != -100 for x in predicted(w))] if not packing else want
                got = ours(build, folder, rows, length, packing)
                total += len(want)
                differ = abs(len(want) - len(got)) + sum(
                    w["ids"] != g["ids"] or predicted(w) != predicted(g) or
                    (packing and w["lengths"] != g["lengths"]) for w, g in zip(want, got))
                wrong += differ
                print("%-8s %-16s length %4d %s: %d rows, %d differ" %
                      (name, kind, length, "packed" if packing else "      ", len(want), differ), flush=True)
                if differ:
                    for w, g in zip(want, got):
                        if w["ids"] != g["ids"] or predicted(w) != predicted(g):
                            print("  theirs", w["ids"][:40], predicted(w)[:40], w["lengths"])
                            print("  ours  ", g["ids"][:40], predicted(g)[:40], g["lengths"])
                            break
    print("%d rows, %d differ" % (total, wrong))
    sys.exit(wrong != 0)


main(*sys.argv[1:])
