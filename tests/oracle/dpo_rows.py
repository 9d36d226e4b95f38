"""Compares the ids of pairs (chosen, rejected) that TRL's DPOTrainer makes from rows with tide's.

    python tests/oracle/dpo_rows.py write FIXTURES                 writes pairs.json there (the tokenizers are the fixtures')
    python tests/oracle/dpo_rows.py compare BUILD FIXTURES [SEED]  random rows; needs tests/text/print_batches

Both need trl and datasets beside transformers.
"""
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import types

import datasets
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer

datasets.disable_progress_bars()
logging.getLogger("trl").setLevel(logging.ERROR)

CHATML = ("{% if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}{% for m in messages %}"
          "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\\n' + (thought | default('')) }}{% endif %}")
LLAMA = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
         "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% else %}{{ m.content }}{% endif %}{% endfor %}")
MODELS = {  # fixture: (template, special tokens)
    "gpt2": (CHATML, {"eos_token": "<|endoftext|>"}),
    "qwen2": (CHATML, {"eos_token": "<|im_end|>"}),
    "llama3": (CHATML, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "llama2": (LLAMA, {"bos_token": "<s>", "eos_token": "</s>"}),
    "tekken": (LLAMA, {"bos_token": "<s>", "eos_token": "</s>"}),
}
TOOLS = [{"type": "function", "function": {"name": "sum", "parameters": {}}}]


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def fixed_rows(end):
    """Rows with special boundaries; `end` is the token after a text."""
    question = [user("2 + 2?")]
    return [
        {"prompt": "The sky is", "chosen": " blue.", "rejected": " green, and so is the sea."},
        {"prompt": "The sky is", "chosen": " blue." + end, "rejected": " green." + end + " No."},
        {"prompt": "The sky is " + end, "chosen": "x" + end, "rejected": end},
        # the prompt's last token may be part of a longer one
        {"prompt": "I saw th", "chosen": "e cat", "rejected": "e dog"},
        {"prompt": "I saw th", "chosen": "e cat", "rejected": "! Really"},
        {"prompt": "I saw th", "chosen": "! Really", "rejected": "e cat"},
        {"prompt": "Say ", "chosen": "hello there", "rejected": " nothing"},
        {"prompt": "Lines\n", "chosen": "\n\nof text", "rejected": "of text"},
        {"prompt": "", "chosen": "Hello, world!", "rejected": "Good bye."},
        {"prompt": " ", "chosen": " ", "rejected": "  "},
        {"prompt": "naïve 的一是 ", "chosen": "über 😀", "rejected": "é\u0301 😁"},
        {"prompt": "the same", "chosen": " answer", "rejected": " answer"},
        {"prompt": "long " * 9, "chosen": "short", "rejected": "the other one is longer than that " * 3},
        # the prompt is the common beginning
        {"chosen": "The sky is blue.", "rejected": "The sky is green."},
        {"chosen": "The sky is blue.", "rejected": "The sky isn't."},
        {"chosen": "a 😀", "rejected": "a 😁"},
        {"chosen": "x😀y", "rejected": "x😁"},
        {"chosen": "über", "rejected": "ünder"},
        {"chosen": "the cat", "rejected": "the cat sat"},
        {"chosen": "the cat 😀", "rejected": "the cat 😀"},
        {"chosen": "no part", "rejected": "in common"},
        {"chosen": "a  b", "rejected": "a  c"},
        {"prompt": question, "chosen": [answer("4")], "rejected": [answer("22, of course")]},
        {"prompt": [{"role": "system", "content": "Short!"}] + question, "chosen": [answer("4"), user("Why?"), answer("So.")],
         "rejected": [answer("é 😀")]},
        {"prompt": question, "chosen": [answer("4")], "rejected": [answer("5")], "tools": json.dumps(TOOLS)},
        {"prompt": question, "chosen": [answer("<think>4")], "rejected": [answer("<think>5")],
         "chat_template_kwargs": {"thought": "<think>"}},
        # only one answer begins with the end of the prompt
        {"prompt": question, "chosen": [answer("<think>4")], "rejected": [answer("5")],
         "chat_template_kwargs": {"thought": "<think>"}},
        {"prompt": question, "chosen": [answer("5")], "rejected": [answer("<think>4")],
         "chat_template_kwargs": {"thought": "<think>"}},
        {"chosen": question + [answer("4")], "rejected": question + [answer("5")]},
        {"chosen": question + [answer("4"), user("Why?"), answer("So.")],
         "rejected": question + [answer("4"), user("Why?"), answer("No.")]},
        {"chosen": question + [answer("4")], "rejected": question + [answer("4"), user("Why?"), answer("No.")]},
        {"chosen": question + [answer("4")], "rejected": question + [answer("4")]},
    ]


def words(rng, n):
    stock = ["the", "cat", "über", "naïve", "x1", "42", "的一是", "😀", "😁", "don't", "\n", "  ", "Hello,", "world!", "é"]
    return rng.choice((" ", "", " ")).join(rng.choice(stock) for _ in range(n))


def random_rows(kind, rng, count):
    out = []
    for _ in range(count):
        text = lambda: words(rng, rng.randrange(1, rng.choice((3, 12, 60)))) + rng.choice(("", ".", "</s>", "<|im_end|>"))
        if kind == "text":
            out.append({"prompt": text(), "chosen": text(), "rejected": text()})
        elif kind == "implicit":
            first = text()
            row = {"chosen": first + text(), "rejected": first + text()}
            # TRL would split this row differently
            if row["chosen"][0] != row["rejected"][0] and row["chosen"].endswith(" "):
                row["chosen"] += "."
            out.append(row)
        else:
            turns = [m for _ in range(rng.randrange(0, 3)) for m in (user(text()), answer(text()))] + [user(text())]
            row = {"prompt": turns, "chosen": [answer(text())], "rejected": [answer(text())]}
            if kind == "implicit chat":
                row = {"chosen": turns + row["chosen"], "rejected": turns + row["rejected"]}
            out.append(row)
    return out


def theirs(tokenizer, rows, length):
    """(index, number of prompt tokens, chosen, rejected) of the rows that TRL keeps."""
    args = DPOConfig(output_dir=tempfile.mkdtemp(), max_length=length, report_to=[], bf16=False, use_cpu=True)
    me = types.SimpleNamespace(_tokenizer=tokenizer)
    data = datasets.Dataset.from_list([dict(r, index=i) for i, r in enumerate(rows)])
    data = DPOTrainer._prepare_dataset(me, data, tokenizer, args, "train")
    collate = DataCollatorForPreference(pad_token_id=0, max_length=length)
    out = []
    for row in data:
        batch = collate([{k: row[k] for k in ("prompt_ids", "chosen_ids", "rejected_ids")}])
        ids = [i[m == 1].tolist() for i, m in zip(batch["input_ids"], batch["attention_mask"])]
        first = int(batch["completion_mask"][0].argmax())
        assert first == int(batch["completion_mask"][1].argmax()) == len(row["prompt_ids"])
        out.append((row["index"], first, ids[0], ids[1]))
    return out


def make_model(fixtures, name):
    template, special = MODELS[name]
    folder = tempfile.mkdtemp()
    shutil.copy(os.path.join(fixtures, name + ".json"), os.path.join(folder, "tokenizer.json"))
    config = dict(special, chat_template=template)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(config, f)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), **special)
    tokenizer.chat_template = template
    return folder, config, tokenizer


def write(fixtures):
    groups = []
    for name in MODELS:
        _, config, tokenizer = make_model(fixtures, name)
        rows = fixed_rows(MODELS[name][1]["eos_token"])
        merged = 0
        for length in (4096, 20):
            pairs = []
            for row in rows:
                kept = theirs(tokenizer, [row], length)
                want = None
                if kept:
                    _, first, chosen, rejected = kept[0]
                    want = {"prompt": first, "chosen": chosen, "rejected": rejected}
                    if isinstance(row.get("prompt"), str):
                        merged += first < len(tokenizer(row["prompt"])["input_ids"])
                pairs.append({"row": row, "want": want})
            print(name, length, "%d rows, %d dropped, %d prompts end inside a token" %
                  (len(pairs), sum(p["want"] is None for p in pairs), merged))
            assert merged > 1
            groups.append({"tokenizer": name, "config": config, "length": length, "pairs": pairs})
    with open(os.path.join(fixtures, "pairs.json"), "w") as f:
        f.write("[\n")
        for i, group in enumerate(groups):
            pairs = group.pop("pairs")
            f.write(json.dumps(group, ensure_ascii=False)[:-1] + ', "pairs": [\n')
            f.write(",\n".join(json.dumps(p, ensure_ascii=False) for p in pairs))
            f.write("\n]}%s\n" % ("," if i + 1 < len(groups) else ""))
        f.write("]\n")


def ours(build, folder, rows, length):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps(r) + "\n" for r in rows))
        f.flush()
        run = subprocess.run([os.path.join(build, "tests/text/print_batches"), folder, f.name, str(length), "pairs"],
                             capture_output=True, text=True)
    if run.returncode != 0 and "no tokens to train on" not in run.stderr:
        sys.exit(run.stderr)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    out = []
    for chosen, rejected in zip(lines[::2], lines[1::2]):
        begins = []
        for row in (chosen, rejected):
            # the first token's label is not used
            begins.append(next(i for i, label in enumerate(row["labels"]) if i > 0 and label != -100))
            assert all(label == token for label, token in list(zip(row["labels"], row["ids"]))[begins[-1]:])
        assert begins[0] == begins[1]
        out.append((begins[0], chosen["ids"], rejected["ids"]))
    return out


def compare(build, fixtures, seed=""):
    wrong = total = 0
    for name in MODELS:
        folder, _, tokenizer = make_model(fixtures, name)
        for kind in ("text", "implicit", "chat", "implicit chat"):
            rng = random.Random(name + kind + seed)
            rows = random_rows(kind, rng, 400)
            for length in (4096, rng.randrange(8, 200)):
                want = [(max(first, 1), chosen, rejected) for _, first, chosen, rejected in theirs(tokenizer, rows, length)]
                got = ours(build, folder, rows, length)
                differ = abs(len(want) - len(got)) + sum(w != g for w, g in zip(want, got))
                total += len(want)
                wrong += differ
                print("%-8s %-14s length %4d: %d pairs, %d differ" % (name, kind, length, len(want), differ), flush=True)
                for w, g in zip(want, got):
                    if w != g:
                        print("  theirs", w, "\n  ours  ", g)
                        break
    print("%d pairs, %d differ" % (total, wrong))
    sys.exit(wrong != 0)


{"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
