#!/usr/bin/env python3
"""model_peers.py: compares the plain training step with PyTorch's, and loading with dd, in turns on one machine.
  model_peers.py --bench build/tests/bench/bench_model --peers DIR --python PY --case CASE [--only NAMES] [--rounds N] [--steps N]
CASE contains `model` and `data.jsonl`. The DIR of --peers contains torch_train.py, which takes CASE and bench_model's arguments and
prints a JSON line per step and a last one with median_seconds and peak_rss_gb. A comparison prints `name value unit` lines: medians,
peak memory, our peak over the bytes of our arrays, and the ratios. `load` reads the weights, and dd the same files, from the page cache."""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time

COMPARISONS = {"bf16": [], "bf16_recompute": ["--recompute"], "fp32": ["--dtype", "float32"]}


def last_line(command, env=None):
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return done.stdout.strip().splitlines()


def ours(a, words):
    return json.loads(last_line([a.bench, a.case, "--steps", str(a.steps), *words])[-1])


def theirs(a, words):
    env = dict(os.environ, PATH=os.path.dirname(a.python) + ":" + os.environ["PATH"])
    return json.loads(last_line([a.python, os.path.join(a.peers, "torch_train.py"), a.case, "--steps", str(a.steps), *words], env)[-1])


def compare(a, name):
    sides = {"tide": [], "torch": []}
    for _ in range(a.rounds):
        sides["tide"].append(ours(a, COMPARISONS[name]))
        sides["torch"].append(theirs(a, COMPARISONS[name]))
    seconds = {side: statistics.median(one["median_seconds"] for one in runs) for side, runs in sides.items()}
    for side, runs in sides.items():
        print(f"{name}_{side}_step {seconds[side]:.4f} s")
        print(f"{name}_{side}_peak {max(one['peak_rss_gb'] for one in runs):.3f} GB")
    tables = max(one["peak_rss_gb"] / one["table_gb"] for one in sides["tide"])
    print(f"{name}_peak_over_tables {tables:.3f} x")
    print(f"{name}_speed {seconds['torch'] / seconds['tide']:.3f} x", flush=True)


def load(a):
    files = sorted(glob.glob(a.case + "/model/*.safetensors"))
    size = sum(os.path.getsize(file) for file in files)
    rates = {"tide": [], "dd": []}
    for _ in range(max(a.rounds, 5) + 1):
        lines = last_line([a.bench, a.case, "--steps", "1", "--load"])
        rates["tide"].append(size / float(next(line for line in lines if line.startswith("load_seconds")).split()[1]))
        start = time.perf_counter()
        for file in files:
            subprocess.run(["dd", "if=" + file, "of=/dev/null", "bs=1M", "status=none"], check=True)
        rates["dd"].append(size / (time.perf_counter() - start))
    medians = {side: statistics.median(each[1:]) for side, each in rates.items()}  # the first round fills the page cache
    for side, rate in medians.items():
        print(f"load_{side} {rate / 1e9:.2f} GB/s")
    print(f"load_ratio {medians['tide'] / medians['dd']:.3f} x", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", required=True)
    p.add_argument("--peers", required=True)
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--case", required=True)
    p.add_argument("--only", default=",".join([*COMPARISONS, "load"]))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    a = p.parse_args()
    for name in a.only.split(","):
        if name == "load":
            load(a)
        else:
            compare(a, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
