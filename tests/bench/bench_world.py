#!/usr/bin/env python3
"""Two ranks in two processes: our collectives and MPI's, processes and threads, and training by tide and DeepSpeed over gloo.
    bench_world.py --build BUILD [--peers DIR --python PY] --case CASE --scratch DIR [--only NAMES] [--rounds N] [--quick]
CASE is made by BUILD/tests/bench/bench_case 158m CASE; DIR has the scripts that train CASE with DeepSpeed. Runs the sides of a
comparison in turns, with Open MPI's mpirun, and prints `name value unit` lines. Memory is the sum of the processes' peaks.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading

import turns

MPIRUN = ["mpirun.openmpi", "--oversubscribe", "-n", "2"]
ROOT = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def descendants(pid):
    found = [pid]
    for process in found:
        try:
            with open(f"/proc/{process}/task/{process}/children") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return found


def peak(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def run(processes, env=None):
    """Starts the commands together; returns the first one's output and the sum of the processes' peaks in GB."""
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=dict(os.environ, **ROOT, **(env or {}), **own)) for command, own in processes]
    peaks, ended = {}, threading.Event()

    def watch():
        while not ended.wait(0.2):
            for process in started:
                for pid in descendants(process.pid):
                    peaks[pid] = max(peaks.get(pid, 0), peak(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    outputs = [process.communicate() for process in started]
    ended.set()
    watcher.join()
    for process, (_, errors) in zip(started, outputs):
        if process.returncode != 0:
            raise RuntimeError(errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}")
    return outputs[0][0], sum(peaks.values()) / 1e9


def figures(text):
    return {words[0]: float(words[1]) for words in map(str.split, text.splitlines()) if len(words) == 3}


def compare_collectives(a):
    bind = [*MPIRUN, "--bind-to", "core"]
    results = turns.alternate(a, {side: lambda scratch, side=side: figures(run([([*bind, f"{a.build}/tests/bench/{side}"], {})])[0])
                                  for side in ("bench_coll", "bench_coll_mpi")})
    middle = {side: {name: statistics.median(one[name] for one in runs) for name in runs[0]} for side, runs in results.items()}
    ours, theirs = middle["bench_coll"], middle["bench_coll_mpi"]
    print(f"allreduce {ours['allreduce_us']:.1f} us")
    print(f"allreduce_over_mpi {ours['allreduce_us'] - theirs['allreduce_us']:.1f} us")
    print(f"reduce_64MiB {ours['reduce_s'] * 1e3:.1f} ms")
    print(f"reduce_of_exchange_and_sum {(theirs['exchange_s'] + ours['sum_s']) / ours['reduce_s']:.3f} x", flush=True)


def tide(a, scratch, ranks, words):
    log = scratch + "/log.jsonl"
    command = [a.build + "/tools/tide", "finetune", "--model", a.case + "/model", "--data", a.case + "/data.jsonl", "--out", scratch + "/out",
               "--steps", str(a.steps), "--batch", str(a.batch), "--seq-len", "512", "--lr", "1e-4", "--threads", "2", "--log", log, "-q", *words]
    how = [*MPIRUN, "--bind-to", "none", *command] if ranks == "processes" else [*command, "--ranks", "2"]
    memory = run([(how, {})])[1]
    with open(log) as file:
        return json.loads(file.readlines()[-1]) | {"memory": memory}


def deepspeed(a):
    command = [a.python, a.peers + "/deepspeed_train.py", a.case, "--steps", str(a.steps), "--batch", str(a.batch), "--threads", "1", "--recompute",
               "--offload", "cpu"]
    env = dict(WORLD_SIZE="2", PYTHONPATH=a.peers, PATH=os.path.dirname(a.python) + ":" + os.environ["PATH"])
    text, memory = run([(command, dict(RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(2)], env)
    return json.loads(text.strip().splitlines()[-1]) | {"memory": memory}


def report(name, sides):
    seconds = [statistics.median(one["median_seconds"] for one in runs) for runs in sides.values()]
    memory = [max(one["memory"] for one in runs) for runs in sides.values()]
    for side, one, gb in zip(sides, seconds, memory):
        print(f"{name}_{side}_step {one:.4f} s\n{name}_{side}_memory {gb:.3f} GB")
    print(f"{name}_speed {seconds[1] / seconds[0]:.3f} x\n{name}_memory {memory[0] / memory[1]:.3f} x", flush=True)


COMPARISONS = {
    "collectives": compare_collectives,
    "threads": lambda a: report("threads", turns.alternate(a, {
        ranks: lambda scratch, ranks=ranks: tide(a, scratch, ranks, ["--zero", "3"]) for ranks in ("processes", "threads")})),
    "deepspeed": lambda a: report("deepspeed", turns.alternate(a, {
        "tide": lambda scratch: tide(a, scratch, "processes", ["--zero", "3", "--clip", "1"]), "peer": lambda scratch: deepspeed(a)})),
}


def main():
    p = turns.parser(__doc__, COMPARISONS, COMPARISONS, 1, 2)
    p.add_argument("--build", required=True)
    a = turns.parse(p)
    a.build = os.path.abspath(a.build)
    if shutil.which(MPIRUN[0]) is None:
        sys.exit("bench_world.py needs mpirun.openmpi (Debian: openmpi-bin)")
    failed = 0
    for name in a.only.split(","):
        try:
            COMPARISONS[name](a)
        except (RuntimeError, OSError, ValueError, IndexError, KeyError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
