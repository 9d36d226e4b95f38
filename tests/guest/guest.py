"""guest.py: runs cases of the Python package and prints TAP; skips them without torch."""

import os
import pathlib
import sys
import tempfile
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools/guest/pytorch"
sys.path.insert(0, str(PACKAGE))
sys.dont_write_bytecode = True
python = os.environ.get("TIDE_TEST_PYTHON", "python3")
if "TIDE_TEST_PYTHON" in os.environ and "TIDE_TEST_PYTHON_RUNS" not in os.environ:
    os.environ["TIDE_TEST_PYTHON_RUNS"] = "1"
    os.execvp(python, [python, *sys.argv])
os.environ["OMP_WAIT_POLICY"] = "passive"
try:
    import torch
except ImportError:
    torch = None  # all cases are skipped
# Rates that one case measures are used by the others.
CACHE = str(pathlib.Path(os.environ.get("TIDE_BUILD_ROOT", tempfile.gettempdir())) / "tests/cache/guest")


class Skipped(Exception):
    """A case lacks something; the message names it."""


def refused(kind, words, call):
    """Fails unless `call` raises `kind` with a message that has these words."""
    try:
        call()
    except kind as error:
        assert words in str(error), f"{error} has no {words!r}"
        return
    raise AssertionError(f"nothing was refused; expected {kind.__name__}: {words}")


def main(cases):
    """Runs the cases that the command line selects, in separate folders."""
    chosen = [case for case in cases if not sys.argv[1:] or any(w in case.__name__ for w in sys.argv[1:])]
    print(f"1..{len(chosen)}", flush=True)
    failed = False
    if torch is None:
        for number, case in enumerate(chosen, 1):
            print(f"ok {number} - {case.__name__} # SKIP {python} has no torch")
        return 0
    os.makedirs(CACHE, exist_ok=True)
    torch.set_num_threads(1)
    for number, case in enumerate(chosen, 1):
        with tempfile.TemporaryDirectory(prefix="tide-test-") as folder:
            try:
                torch.manual_seed(1)
                case(pathlib.Path(folder))
                print(f"ok {number} - {case.__name__}", flush=True)
            except Skipped as reason:
                print(f"ok {number} - {case.__name__} # SKIP {reason}", flush=True)
            except Exception:
                failed = True
                print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="")
                print(f"not ok {number} - {case.__name__}", flush=True)
    return 1 if failed else 0
