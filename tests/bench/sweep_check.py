"""sweep_check.py TOOL DIRECTORY [GRID_ROUNDS]: is the default sweep's recommendation as good as the best of a grid?
Runs the sweep, then the grid in rounds with the recommended setting in it. The best setting of each operation is chosen by the even
rounds and compared by the odd ones, so that a point that was lucky once gains nothing. Needs Python's own library only."""
import json
import statistics
import subprocess
import sys
import tempfile
import time

VISIT = 5  # samples of a visit: a round of the tool's grid
BLOCKS = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20]
DEPTHS = [1, 2, 4, 8, 16, 32, 64]


def run(tool, directory, *options):
    with tempfile.NamedTemporaryFile() as file:
        begin = time.monotonic()
        subprocess.run([tool, "--nvme_dir", directory, "--json", file.name, *options], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(file.name)), time.monotonic() - begin


def listed(values, more):
    return ",".join(str(v) for v in sorted(set(values) | {more}))


tool, directory = sys.argv[1:3]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 4
sweep, seconds = run(tool, directory)
aio = sweep["recommendation"]["config"]["aio"]
chosen = (aio["block_size"], aio["queue_depth"], aio["intra_op_parallelism"])
print(f"# recommended: block {chosen[0]}, depth {chosen[1]}, threads {chosen[2]}, confidence {sweep['recommendation']['confidence']}")
print(f"sweep_seconds {seconds:.1f} s")
grid, seconds = run(tool, directory, "--full", "--block_size", listed(BLOCKS, chosen[0]), "--queue_depth", listed(DEPTHS, chosen[1]),
                    "--threads", str(chosen[2]), "--runtime", str(0.12 * rounds), "--ramp_time", "0.03", "--loops", str(rounds))
print(f"grid_seconds {seconds:.1f} s")
for op in ("read", "write", "rw"):
    halves = {}
    for point in grid["points"]:
        p = point["params"]
        if p["op"] == op:
            visits = [point["samples"][i:i + VISIT] for i in range(0, len(point["samples"]), VISIT)]
            halves[p["block_size"], p["queue_depth"], p["threads"]] = [
                statistics.median(sum(visits[k::2], [])) for k in (0, 1)]
    best = max(halves, key=lambda setting: halves[setting][0])
    print(f"# best to {op}: block {best[0]}, depth {best[1]}")
    print(f"sweep_{op}_of_grid_best {halves[chosen][1] / halves[best][1]:.3f} x", flush=True)
