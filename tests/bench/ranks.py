#!/usr/bin/env python3
"""Predicted and measured seconds of a step with 1, 2 and 4 ranks as threads.

    tests/bench/ranks.py BUILD [FOLDER] [--quick]

FOLDER (default: a temporary one) holds the model and, on its drive, the store. Prints one line per figure,
"name value unit"; ratio is predicted over measured, and 0.85 to 1.15 is the aim. The machine must have nothing
else to do.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if not words:
        sys.exit(__doc__)
    quick = "--quick" in sys.argv
    tools = os.path.join(os.path.abspath(words[0]), "tools")
    folder = words[1] if len(words) > 1 else tempfile.mkdtemp()
    case = os.path.join(folder, "case")
    store = os.path.join(folder, "store")
    os.makedirs(store, exist_ok=True)
    if not os.path.exists(case):
        shape = "--hidden 256 --layers 4 --heads 8 --kv-heads 8 --inner 704" if quick else \
                "--hidden 768 --layers 8 --heads 12 --kv-heads 12 --inner 2048"
        run([f"{tools}/tide_make_case", case] + shape.split() +
            "--vocab 8192 --seq-len 256 --rows 256".split())
    for place in ("weights=host,states=host", "weights=host,states=store"):
        for ranks in (1, 2, 4):
            common = ["--model", f"{case}/model", "--data", f"{case}/rows.jsonl", "--batch", "2", "--ranks",
                      str(ranks), "--zero", "3" if ranks > 1 else "0", "--clip", "0", "--place", place,
                      "--store", f"{store}:8GB"]
            plan = json.loads(run([f"{tools}/tide", "plan", "--json", "-q", "--measure"] + common))
            log = os.path.join(folder, "log.jsonl")
            run([f"{tools}/tide", "finetune", "--out", f"{folder}/out", "--overwrite", "-q", "--steps",
                 "6" if quick else "12", "--log", log] + common)
            with open(log) as file:
                rows = [json.loads(line) for line in file]
            seconds = statistics.median(row["seconds"] for row in rows if "step" in row and row["step"] > 2)
            name = f"ranks_{ranks}_{'store' if 'store' in place else 'host'}"
            print(f"{name}_predicted {plan['step']['seconds']:.4f} s")
            print(f"{name}_measured {seconds:.4f} s")
            print(f"{name}_ratio {plan['step']['seconds'] / seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
