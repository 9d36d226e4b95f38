"""turns.py: runs the sides of a comparison in turns, under the same conditions, and parses the arguments of such scripts."""
import argparse
import os
import shutil
import sys
import tempfile
import time


def parser(text, comparisons, only, batch, rest):
    """Returns a parser with the common arguments; `only`, `batch` and `rest` are defaults."""
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--case", required=True)
    p.add_argument("--scratch", required=True)
    p.add_argument("--only", default=",".join(only), help="names, with commas: " + ", ".join(comparisons))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--batch", type=int, default=batch, help="rows of a rank")
    p.add_argument("--rest", type=float, default=rest, help=f"seconds to wait after each turn, for a drive that discards [{rest}]")
    p.add_argument("--quick", action="store_true", help="one round of three steps")
    return p


def parse(p):
    """Returns the arguments, and creates the folder `scratch`."""
    a = p.parse_args()
    if a.quick:
        a.rounds, a.steps = 1, 3
    os.makedirs(a.scratch, exist_ok=True)
    return a


def alternate(a, sides):
    """Runs `sides`, functions by name, in each round with a new folder in a.scratch. Returns the results by name."""
    results = {name: [] for name in sides}
    for _ in range(a.rounds):
        for name, run in sides.items():
            scratch = tempfile.mkdtemp(dir=a.scratch)
            try:
                results[name].append(run(scratch))
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
                os.sync()
                time.sleep(a.rest)  # drives are slow while they discard removed blocks
    return results
