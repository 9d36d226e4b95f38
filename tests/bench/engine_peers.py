#!/usr/bin/env python3
"""engine_peers.py: compares training steps of tide, PyTorch and DeepSpeed, which run in turns on one machine.
  engine_peers.py --tide build/tools/tide --peers DIR --python PY --case CASE --scratch DIR [--only NAMES] [--rounds N] [--quick]
CASE contains `model` and `data.jsonl`. The DIR of --peers contains common.py, torch_train.py and deepspeed_train.py, which print a JSON
line per step and a last one with median_seconds and peak_rss_gb. adapter_peer.py needs peft, and dpo_peer.py also trl. Comparisons dpo and
dpo_fp32 run only if --only names them, on the CASE of `dpo_peer.py make`. A comparison prints medians, peak memory and their ratios as
`name value unit` lines. A failed comparison is reported, and the others run."""
import json
import os
import statistics
import subprocess
import sys

import turns

DRIVE = ["--place", "weights=store,states=store", "--store", "S/tide", "--make-store"]
LORA = ["--lora", "16", "--lora-alpha", "32"]
# name: our arguments, their arguments, common arguments; "S" becomes the scratch folder
COMPARISONS = {
    "infinity": (["--clip", "1", *DRIVE], ["deepspeed", "--recompute", "--offload", "nvme", "--nvme", "S/nvme"], []),
    "infinity_unclipped": (["--clip", "0", *DRIVE],
                           ["deepspeed", "--recompute", "--offload", "nvme", "--nvme", "S/nvme", "--clip", "0"], []),
    "infinity_guessing": (["--clip", "100", *DRIVE],
                          ["deepspeed", "--recompute", "--offload", "nvme", "--nvme", "S/nvme", "--clip", "100"], []),
    "offload": (["--clip", "1", "--place", "states=host"], ["deepspeed", "--recompute", "--offload", "cpu"], []),
    "torch_recompute": (["--clip", "0", *DRIVE], ["torch", "--recompute", "--clip", "0"], []),
    "torch_kept": (["--clip", "1"], ["torch"], []),
    "lora": (LORA, ["adapter", "--recompute"], []),
    "lora_kept": (LORA, ["adapter"], []),
    "lora_drive": ([*LORA, *DRIVE], ["adapter", "--recompute"], []),
    "lora_nf4_drive": ([*LORA, "--base", "nf4", "--place", "weights=store,states=store,acts=recompute",
                        "--store", "S/tide", "--make-store"],
                       ["tide", *LORA, "--base", "nf4", "--place", "weights=host,states=host,acts=recompute"], []),
    "dpo": ([*LORA, "--loss", "dpo"], ["dpo", "--recompute"], []),
    "dpo_fp32": ([*LORA, "--loss", "dpo", "--precision", "fp32"], ["dpo", "--recompute", "--fp32"], []),
    "own_memory": (["--clip", "0", *DRIVE], ["tide", "--clip", "0"], ["--accum", "8"]),
}


def flags(words, scratch):
    return [word.replace("S/", scratch + "/") for word in words]


def run_tide(a, words, shared, scratch):
    log = os.path.join(scratch, "log.jsonl")
    command = [a.tide, "finetune", "--model", a.case + "/model", "--data", a.case + "/data.jsonl", "--out", scratch + "/out",
               "--overwrite", "--steps", str(a.steps), "--batch", str(a.batch), "--lr", "1e-4", "--log", log, "-q", *a.flags,
               *shared, *flags(words, scratch)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with open(log) as file:
        return json.loads(file.readlines()[-1])


def run_peer(a, words, shared, scratch):
    here = os.path.dirname(os.path.abspath(__file__))
    script = {"deepspeed": a.peers + "/deepspeed_train.py", "torch": a.peers + "/torch_train.py",
              "adapter": here + "/adapter_peer.py", "dpo": here + "/dpo_peer.py"}[words[0]]
    command = [a.python, script, a.case, "--steps", str(a.steps), "--batch", str(a.batch), *shared,
               *flags(words[1:], scratch), *(a.deepspeed_flags if words[0] == "deepspeed" else [])]
    env = dict(os.environ, PATH=os.path.dirname(a.python) + ":" + os.environ["PATH"], PYTHONPATH=a.peers)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(a, name):
    ours, theirs, shared = COMPARISONS[name]
    own = theirs[0] == "tide"
    results = turns.alternate(a, {
        "tide": lambda scratch: run_tide(a, ours, shared, scratch),
        "peer": lambda scratch: run_tide(a, theirs[1:], shared, scratch) if own else run_peer(a, theirs, shared, scratch)})
    seconds = {side: statistics.median(one["median_seconds"] for one in runs) for side, runs in results.items()}
    memory = {side: max(one["peak_rss_gb"] for one in runs) for side, runs in results.items()}
    planned = statistics.median(one["plan_seconds"] for one in results["tide"])
    for side in ("tide", "peer"):
        print(f"{name}_{side}_step {seconds[side]:.4f} s")
        print(f"{name}_{side}_peak {memory[side]:.3f} GB")
    print(f"{name}_planned_step {planned:.4f} s")
    print(f"{name}_speed {seconds['peer'] / seconds['tide']:.3f} x")
    print(f"{name}_memory {memory['tide'] / memory['peer']:.3f} x", flush=True)


def main():
    p = turns.parser(__doc__, COMPARISONS, [name for name in COMPARISONS if not name.startswith("dpo")], 2, 5)
    p.add_argument("--tide", required=True)
    p.add_argument("--flags", type=str.split, default=[], help="more flags of tide finetune, in one word")
    p.add_argument("--deepspeed-flags", type=str.split, default=[])
    a = turns.parse(p)
    failed = 0
    for name in a.only.split(","):
        try:
            compare(a, name)
        except (subprocess.CalledProcessError, OSError, ValueError, IndexError) as error:
            words = getattr(error, "stderr", None) or str(error)
            print(f"{name}: {words.strip().splitlines()[-1] if words.strip() else error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
