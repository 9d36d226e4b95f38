"""turns.py: runs the sides of a comparison alternately, so that both meet the same machine."""
import os
import shutil
import tempfile
import time


def alternate(a, sides):
    """Runs each of `sides`, functions by name, once in every round with a new folder in a.scratch. Returns the results by name."""
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
