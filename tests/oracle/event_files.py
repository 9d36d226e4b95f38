#!/usr/bin/env python3
"""Reads event files of `tide finetune --tensorboard DIR` with TensorBoard's own reader:

    python tests/oracle/event_files.py build/tools/tide build/tools/tide_make_case      needs tensorboard

The reader must find the figures of a resumed run's log once, under their tags, even if the newest file
ends in the middle of a record."""
import glob, json, math, os, shutil, subprocess, sys, tempfile
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {
    "train/loss": ("loss",), "train/grad_norm": ("grad_norm",), "train/lr": ("lr",), "train/loss_scale": ("loss_scale",),
    "train/skipped": ("skipped",), "eval/loss": ("eval_loss",), "perf/tokens": ("tokens",), "perf/step_seconds": ("seconds",),
    "perf/tokens_per_second": ("tokens_per_second",), "bytes/store_read": ("store_read_bytes",),
    "bytes/store_write": ("store_write_bytes",), "bytes/h2d": ("h2d_bytes",), "bytes/d2h": ("d2h_bytes",),
    "memory/rss_gb": ("rss_gb",), "bytes/gather": ("ranks", "gather_bytes"), "bytes/reduce": ("ranks", "reduce_bytes"),
    **{f"wait/{k}": ("wait", k) for k in ("store_read", "store_write", "update", "copy", "imbalance", "other", "data")},
    **{f"guesses/{k}": ("guesses", k) for k in ("right", "wrong", "bytes", "seconds")},
}


def finetune(tide, work, *flags):
    command = [tide, "finetune", "--model", f"{work}/case/model", "--data", f"{work}/case/rows.jsonl", "--out", f"{work}/out",
               "--batch", "2", "--log", f"{work}/log.jsonl", "--tensorboard", f"{work}/board", "-q", *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def scalars(folder):
    reader = EventAccumulator(folder, size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: {e.step: e.value for e in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}


def logged(path):
    steps = {}
    for line in open(path):
        row = json.loads(line)
        if "step" in row:
            steps = {s: r for s, r in steps.items() if s < row["step"]} | {row["step"]: row}
    return steps


def compare(found, steps):
    assert set(found) <= set(TAGS), set(found) - set(TAGS)
    count = 0
    for tag, keys in TAGS.items():
        want = {}
        for step, row in steps.items():
            for key in keys:
                row = row.get(key, math.nan) if isinstance(row, dict) else row
            if row is not None and not (isinstance(row, float) and math.isnan(row)):
                want[step] = float(row)
        got = {s: v for s, v in found.get(tag, {}).items() if math.isfinite(v)}
        assert set(got) == set(want), (tag, sorted(got), sorted(want))
        for step, value in want.items():
            assert math.isclose(got[step], value, rel_tol=1e-6, abs_tol=1e-30), (tag, step, got[step], value)
            count += 1
    return count


def main(tide, make_case):
    work = tempfile.mkdtemp()
    subprocess.run([make_case, f"{work}/case", "--hidden", "64", "--layers", "2", "--heads", "4", "--kv-heads", "2",
                    "--inner", "128", "--vocab", "256", "--seq-len", "32", "--rows", "24"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = f"{work}/case/rows.jsonl"
    finetune(tide, work, "--steps", "7", "--save-every", "3", "--eval-data", rows, "--eval-every", "2")
    print("a run:", compare(scalars(f"{work}/board"), logged(f"{work}/log.jsonl")), "values")
    # The first resume repeats step 7.
    for steps in ("9", "11"):
        finetune(tide, work, "--steps", steps, "--save-every", "3", "--eval-data", rows, "--eval-every", "2", "--resume")
        print("resumed:", compare(scalars(f"{work}/board"), logged(f"{work}/log.jsonl")), "values,",
              len(glob.glob(f"{work}/board/*")), "files")
    newest = sorted(glob.glob(f"{work}/board/*"))[-1]
    with open(newest, "r+b") as f:
        f.truncate(os.path.getsize(newest) - 5)
    steps = logged(f"{work}/log.jsonl")
    steps.pop(max(steps))
    print("torn:", compare(scalars(f"{work}/board"), steps), "values")
    shutil.rmtree(work)


if __name__ == "__main__":
    main(*sys.argv[1:3])
