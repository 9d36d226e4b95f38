#!/usr/bin/env python3
"""Predicted and measured seconds of a step with 1, 2 and 4 ranks, as threads and as processes.
    tests/bench/ranks.py BUILD [FOLDER] [--quick] [--rounds N] [--only NAME]
FOLDER (default: a temporary one) holds the model and the store. A run measures the machine, and logs the prediction and the steps. Prints
`name value unit` lines: medians over N rounds (default 3), and predicted over measured, which should be 0.85 to 1.15. NAME selects runs
by name. The last line counts the runs that missed that aim. Processes need Open MPI's mpirun. Nothing else should run.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

MPIRUN = "mpirun.openmpi"
AIM = 0.15


def run(arguments):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(arguments, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")


def step(tools, folder, ranks, processes, place, steps):
    """Predicted and measured seconds of a step."""
    log = os.path.join(folder, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    command = [f"{tools}/tide", "finetune", "--model", f"{folder}/case/model", "--data", f"{folder}/case/rows.jsonl",
               "--batch", "2", "--zero", "3" if ranks > 1 else "0", "--clip", "0", "--place", place, "--measure",
               "--store", f"{folder}/store:8GB", "--out", f"{folder}/out", "--overwrite", "-q", "--steps", str(steps), "--log", log]
    if processes:
        run([MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] + command)
    else:
        run(command + ["--ranks", str(ranks)])
    with open(log) as file:
        rows = [json.loads(line) for line in file]
    planned = next(row["plan"] for row in rows if "plan" in row)["step"]["seconds"]
    return planned, statistics.median(row["seconds"] for row in rows if row.get("step", 0) > 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    tools = os.path.join(os.path.abspath(a.build), "tools")
    folder = a.folder or tempfile.mkdtemp()
    os.makedirs(os.path.join(folder, "store"), exist_ok=True)
    if not os.path.exists(os.path.join(folder, "case")):
        shape = "--hidden 256 --layers 4 --heads 8 --kv-heads 8 --inner 704" if a.quick else \
                "--hidden 768 --layers 8 --heads 12 --kv-heads 12 --inner 2048"
        run([f"{tools}/tide_make_case", f"{folder}/case"] + shape.split() + "--vocab 8192 --seq-len 256 --rows 256".split())
    if shutil.which(MPIRUN) is None:
        print(f"no {MPIRUN} (Debian: openmpi-bin): no runs with processes", file=sys.stderr)
    runs = [(ranks, processes, place) for place in ("weights=host,states=host", "weights=host,states=store")
            for ranks in (1, 2, 4) for processes in (False, True)
            if not processes or (ranks > 1 and shutil.which(MPIRUN) is not None)]
    missed = 0
    for ranks, processes, place in runs:
        name = f"ranks_{ranks}_{'processes' if processes else 'threads'}_{place.split('=')[-1]}"
        if a.only not in name:
            continue
        turns = [step(tools, folder, ranks, processes, place, 6 if a.quick else 12) for _ in range(1 if a.quick else a.rounds)]
        ratio = statistics.median(planned / measured for planned, measured in turns)
        missed += abs(ratio - 1) > AIM
        print(f"{name}_predicted {statistics.median(planned for planned, _ in turns):.4f} s")
        print(f"{name}_measured {statistics.median(measured for _, measured in turns):.4f} s")
        print(f"{name}_ratio {ratio:.3f} x", flush=True)
    print(f"ranks_missed {missed} runs")


if __name__ == "__main__":
    main()
