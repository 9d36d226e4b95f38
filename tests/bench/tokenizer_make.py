"""tokenizer_make.py OUT.json TEXT.bin SIZE FOLDER...: makes the inputs of bench_tokenizer: a byte-level tokenizer with Llama 3's pipeline,
trained on the folders' texts and on generated text in twelve scripts, with merges of random pairs up to SIZE tokens; and 8 MB of documents,
each followed by a NUL."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import json  # noqa: E402

import tokenizer_families as fam  # noqa: E402

out, text_path, size, folders = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
rng = random.Random(1)
documents = []
for folder in folders:
    for root, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith((".py", ".c", ".h", ".md", ".txt", ".rst", ".html")):
                with open(os.path.join(root, name), encoding="utf-8", errors="ignore") as f:
                    text = f.read().replace("\0", "")
                documents += [text[i:i + 3000] for i in range(0, min(len(text), 60000), 3000)]
rng.shuffle(documents)
documents = documents[:2000] + [fam.words(rng, 400) for _ in range(1000)]
rng.shuffle(documents)
tokenizer = fam.base()
file = fam.byte_level(documents[: len(documents) // 2], min(size, 30000), fam.split(fam.LLAMA3), ["<|begin_of_text|>", "<|eot_id|>"],
                      post=lambda t: fam.processors.Sequence([fam.processors.ByteLevel(trim_offsets=False),
                                                              fam.template(["<|begin_of_text|>"])(t)]))
vocab, merges = file["model"]["vocab"], file["model"]["merges"]
special = {t["content"] for t in file["added_tokens"]}
names = [v for v in vocab if v not in special and len(v) < 12]
taken = set(vocab) | {t["content"] for t in file["added_tokens"]}
next_id = max(vocab.values()) + 1
while next_id < size - len(special):
    a, b = rng.choice(names), rng.choice(names)
    if a + b not in taken:
        taken.add(a + b)
        vocab[a + b] = next_id
        merges.append([a, b])
        next_id += 1
for token in file["added_tokens"]:  # after the vocabulary: the package gives them these ids whatever a file says
    token["id"] = next_id
    for step in file["post_processor"]["processors"]:
        if token["content"] in step.get("special_tokens", {}):
            step["special_tokens"][token["content"]]["ids"] = [next_id]
    next_id += 1
with open(out, "w", encoding="utf-8") as f:
    json.dump(file, f, ensure_ascii=False)
with open(text_path, "wb") as f:
    total = 0
    for d in documents[len(documents) // 2:] + documents:
        if total < 8 << 20:
            f.write(d.encode() + b"\0")
            total += len(d.encode())
print("%s: %d tokens, %d merges; %s: %d bytes" % (out, next_id, len(merges), text_path, total))
