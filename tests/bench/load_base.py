#!/usr/bin/env python3
"""load_base.py: how long tide takes to quantise a base while it reads the model's files, and its two limits.
  load_base.py --tide build/tools/tide --case CASE --scratch DIR [--base nf4] [--rounds N] [--flags "..."]
CASE contains `model`, in 16 or 32 bits, and `data.jsonl`. A round reads the files with direct I/O, eight reads of 1 MiB at a time (drive), loads
with the files in the page cache (processor), if they fit there, and loads with the files dropped from it (load). Prints the best times, and the larger limit over the
load: 1 means that reading and quantising overlap fully. Loading is the time between the lines "load ..." and "plan:" of tide finetune.
Nothing else should run."""
import argparse
import glob
import mmap
import os
import subprocess
import threading
import time

MIB = 1 << 20


def read_directly(paths):
    jobs = [(path, at) for path in paths for at in range(0, os.path.getsize(path), MIB)]
    files = {path: os.open(path, os.O_RDONLY | os.O_DIRECT) for path in paths}
    lock = threading.Lock()

    def work():
        buffer = mmap.mmap(-1, MIB)
        while True:
            with lock:
                if not jobs:
                    return
                path, at = jobs.pop(0)
            os.preadv(files[path], [buffer], at)

    start = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    for file in files.values():
        os.close(file)
    return seconds


def drop(paths):
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def warm(paths):
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(MIB):
                pass


def load(a):
    command = [a.tide, "finetune", "--model", a.case + "/model", "--data", a.case + "/data.jsonl", "--out", a.scratch + "/out", "--overwrite", "--steps", "1",
               "--batch", "1", "--seq-len", "16", "--lora", "4", "--base", a.base, "--place", "weights=host,states=host", *a.flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    begin = end = None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("load"):
            begin = time.perf_counter()
        if line.startswith("plan:"):
            end = time.perf_counter()
    if process.wait() != 0 or begin is None or end is None:
        raise SystemExit("tide finetune failed: " + "".join(lines[-3:]))
    return end - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tide", required=True)
    p.add_argument("--case", required=True)
    p.add_argument("--scratch", required=True)
    p.add_argument("--base", default="nf4", choices=["nf4", "int8"])
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--flags", type=str.split, default=[], help="more flags of tide finetune, in one word")
    a = p.parse_args()
    os.makedirs(a.scratch, exist_ok=True)
    paths = sorted(glob.glob(a.case + "/model/*.safetensors"))
    gigabytes = sum(map(os.path.getsize, paths)) / 1e9
    best = {}
    for _ in range(a.rounds):
        drop(paths)
        turns = {"drive": lambda: read_directly(paths), "processor": lambda: (warm(paths), load(a))[1], "load": lambda: (drop(paths), load(a))[1]}
        for name, turn in turns.items():
            seconds = turn()
            best[name] = min(best.get(name, seconds), seconds)
    for name, seconds in best.items():
        print(f"{name} {seconds:.3f} s, {gigabytes / seconds:.3f} GB/s")
    print(f"limit_over_load {max(best['drive'], best['processor']) / best['load']:.3f} x", flush=True)


if __name__ == "__main__":
    main()
