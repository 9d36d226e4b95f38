"""Compares tide's tokenizer with the `tokenizers` package, token for token.

    python tests/oracle/tokenizer_check.py write tests/text/fixtures   writes the committed fixtures
    python tests/oracle/tokenizer_check.py compare BUILD [COUNT] [NAME...]
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_families as fam  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def write(folder):
    os.makedirs(folder, exist_ok=True)
    for name, file in fam.families(700):
        text = json.dumps(file, ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            f.write(text + "\n")
        tokenizer = Tokenizer.from_str(text)
        rows = []
        for s in fam.strings(11, 260):
            e = tokenizer.encode(s)
            bare = tokenizer.encode(s, add_special_tokens=False)
            rows.append([s, e.ids, len(e.ids) - len(bare.ids), tokenizer.decode(bare.ids, False)])
        with open(os.path.join(folder, name + ".rows.json"), "w", encoding="utf-8") as f:
            f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")
        print(name, len(file["model"]["vocab"]))


def ours(program, path, texts, special):
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    run = subprocess.run([program, path, "1" if special else "0"], input=data, capture_output=True)
    if run.returncode != 0:
        sys.exit(run.stderr.decode())
    out, at = [], 0
    while at < len(run.stdout):
        n, = struct.unpack_from("<I", run.stdout, at)
        ids = list(struct.unpack_from("<%dI" % n, run.stdout, at + 4))
        at += 4 + 4 * n
        m, = struct.unpack_from("<I", run.stdout, at)
        out.append((ids, run.stdout[at + 4:at + 4 + m].decode()))
        at += 4 + m
    return out


def compare(build, count, names):
    program = os.path.join(build, "tests/text/encode_texts")
    bad = 0
    texts = fam.strings(5, count) + list(fam.long_strings(3).values())
    raw = [t.encode() for t in texts]
    for name, file in fam.families(2000, names):
        text = json.dumps(file)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write(text)
            f.flush()
            got = ours(program, f.name, raw, True)
        tokenizer = Tokenizer.from_str(text)
        wrong = shown = decoded = 0
        for at in range(0, len(texts), 5000):
            for i, e in enumerate(tokenizer.encode_batch(texts[at:at + 5000]), at):
                ids, back = got[i]
                same = ids == e.ids
                ok = not same or back == tokenizer.decode(e.ids, False)
                wrong += not same
                decoded += not ok
                if not (same and ok) and shown < 3:
                    shown += 1
                    print(" %s %r\n  theirs %r\n  ours   %r" % (name, texts[i][:200], e.ids[:60], ids[:60]))
                    print("  back   %r\n         %r" % (tokenizer.decode(e.ids, False)[:200], back[:200]))
        print("%-10s %d strings, %d with other ids, %d decoded otherwise" % (name, len(texts), wrong, decoded),
              flush=True)
        bad += wrong + decoded
    sys.exit(bad != 0)


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 200000
    compare(sys.argv[2], count, sys.argv[4:])
