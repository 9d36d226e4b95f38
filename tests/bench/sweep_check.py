"""sweep_check.py TOOL DIRECTORY [ROUNDS] [--keep FILE] [--seconds S]: is the default sweep's recommendation as good as the best of a
grid? Runs the sweep, then pairs of rounds of a grid that includes the recommended setting: even rounds choose the best setting of an
operation, odd ones compare it, so that luck does not count. With --keep a call that stopped after S seconds is continued. Needs only
Python's standard library."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

VISIT = 5  # samples of each point in one round of the grid
BLOCKS = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20]
DEPTHS = [1, 2, 4, 8, 16, 32, 64]


def run(args, *options):
    with tempfile.NamedTemporaryFile() as file:
        begin = time.monotonic()
        subprocess.run([args.tool, "--nvme_dir", args.directory, "--json", file.name, *options], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(file.name)), time.monotonic() - begin


def listed(values, more):
    return ",".join(str(v) for v in sorted(set(values) | {more}))


def sweep(args):
    made, seconds = run(args)
    recommended = made["recommendation"]
    aio = recommended["config"]["aio"]
    return {"seconds": seconds, "confidence": recommended["confidence"], "rounds": [],
            "chosen": [aio["block_size"], aio["queue_depth"], aio["intra_op_parallelism"]]}


def two_rounds(args, chosen):
    """One dictionary per round, from "op block depth threads" to samples."""
    grid, _ = run(args, "--full", "--block_size", listed(BLOCKS, chosen[0]), "--queue_depth", listed(DEPTHS, chosen[1]),
                  "--threads", str(chosen[2]), "--runtime", "0.24", "--ramp_time", "0.03", "--loops", "2")
    rounds = [{}, {}]
    for point in grid["points"]:
        p = point["params"]
        for k in (0, 1):
            name = "%s %d %d %d" % (p["op"], p["block_size"], p["queue_depth"], p["threads"])
            rounds[k][name] = point["samples"][k * VISIT:(k + 1) * VISIT]
    return rounds


def compare(state):
    chosen = "%d %d %d" % tuple(state["chosen"])
    for op in ("read", "write", "rw"):
        halves = []
        for k in (0, 1):
            rounds = state["rounds"][k::2]
            halves.append({name: statistics.median(sum((r[name] for r in rounds), []))
                           for name in rounds[0] if name.split()[0] == op})
        best = max(halves[0], key=halves[0].get)
        mine = f"{op} {chosen}"
        print(f"# best to {op}: block {best.split()[1]}, depth {best.split()[2]}: {halves[1][best] / 1e9:.2f} GB/s")
        print(f"sweep_{op}_of_grid_best {halves[1][mine] / halves[1][best]:.3f} x", flush=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("tool")
parser.add_argument("directory")
parser.add_argument("rounds", nargs="?", type=int, default=4)
parser.add_argument("--keep")
parser.add_argument("--seconds", type=float, default=1e9)
args = parser.parse_args()
begin = time.monotonic()
state = json.load(open(args.keep)) if args.keep and os.path.exists(args.keep) else sweep(args)
print("# recommended: block %d, depth %d, threads %d, confidence %s" % (*state["chosen"], state["confidence"]))
print(f"sweep_seconds {state['seconds']:.1f} s", flush=True)
piece = 0
while len(state["rounds"]) < args.rounds and time.monotonic() - begin + piece < args.seconds:
    started = time.monotonic()
    state["rounds"] += two_rounds(args, state["chosen"])
    piece = time.monotonic() - started
    if args.keep:
        json.dump(state, open(args.keep, "w"))
if len(state["rounds"]) < args.rounds:
    print(f"# {len(state['rounds'])} of {args.rounds} rounds are done; call again to continue")
else:
    compare(state)
