#!/usr/bin/env python3
"""Makes the tables of docs/sizing.md and docs/published.md from `tide plan`.

    docs/plans.py BUILD/tools/tide [sizing|published]

Each table is between two comments, <!-- begin NAME --> and <!-- end NAME -->, and is replaced. Only the
standard library is needed; nothing is measured, so every machine writes the same tables.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

DOCS = os.path.dirname(os.path.abspath(__file__))
TOKENS = 1e9


def llama(layers, hidden, heads, kv_heads, inner, vocab, tied=False, kind="llama"):
    made = dict(model_type=kind, hidden_size=hidden, num_hidden_layers=layers, vocab_size=vocab,
                num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=inner,
                max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=500000.0,
                hidden_act="silu", tie_word_embeddings=tied)
    if kind == "qwen3":
        made.update(architectures=["Qwen3ForCausalLM"], head_dim=128, max_position_embeddings=40960)
    else:
        made.update(architectures=["LlamaForCausalLM"])
    return made


def gpt(layers, hidden, heads):
    return dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=hidden,
                n_layer=layers, n_head=heads, n_positions=1024, n_ctx=1024, vocab_size=50304,
                activation_function="gelu_new", layer_norm_epsilon=1e-5,
                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


MODELS = {
    "Llama-3.2-1B": llama(16, 2048, 32, 8, 8192, 128256, True),
    "Qwen3-4B": llama(36, 2560, 32, 8, 9728, 151936, True, "qwen3"),
    "Llama-3.1-8B": llama(32, 4096, 32, 8, 14336, 128256),
    "Qwen3-14B": llama(40, 5120, 40, 8, 17408, 151936, False, "qwen3"),
    "Qwen3-32B": llama(64, 5120, 64, 8, 25600, 151936, False, "qwen3"),
    "Llama-3.1-70B": llama(80, 8192, 64, 8, 28672, 128256),
    "Llama-3.1-405B": llama(126, 16384, 128, 8, 53248, 128256),
}


class Plans:
    def __init__(self, tide):
        self.tide = tide
        self.folder = tempfile.mkdtemp()

    def model(self, name, config):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        return folder

    def plan(self, folder, flags):
        """Returns the plan as a dict, or the sentence that says why there is none."""
        done = subprocess.run([self.tide, "plan", "--json", "-q", "--model", folder] + flags,
                              capture_output=True, text=True)
        if done.returncode == 3:
            return done.stderr.strip()
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout)

    def machine(self, name, **values):
        """Writes the file of a shipped machine with other values, and returns its path."""
        with open(os.path.join(DOCS, "..", "tools", "machines", name + ".json")) as file:
            made = json.load(file)
        for key, value in values.items():
            made[key]["value"] = value
        path = os.path.join(self.folder, name + ".json")
        with open(path, "w") as file:
            json.dump(made, file)
        return path


def gb(value):
    return "" if value < 5e7 else f"{value / 1e9:,.{0 if value >= 1e10 else 1}f}"


def count(value):
    return f"{value:,.{0 if value >= 10 else 1}f}"


def replace(page, name, lines):
    path = os.path.join(DOCS, page)
    with open(path) as file:
        text = file.read()
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if not re.search(pattern, text, re.S):
        sys.exit(f"{page} has no {begin.strip()}")
    made = begin + "\n".join(lines) + "\n" + end
    text = re.sub(pattern, lambda _: made, text, count=1, flags=re.S)
    with open(path, "w") as file:
        file.write(text)


SIZING = ["--batch", "4", "--accum", "4", "--seq-len", "2048"]


def sizing_row(name, memory, plan):
    if isinstance(plan, str):
        return [name, memory] + ["does not fit"] + [""] * 6
    step, tiers = plan["step"], plan["tiers"]
    days = TOKENS / step["tokens_per_second"] / 86400
    written = step["store_write_bytes"] * plan["asked"].get("ranks", 1) / plan["asked"].get("nodes", 1)
    tokens = step["tokens_per_second"] * step["seconds"]
    twice = " (two generations)" if plan["chosen"]["timing"] == "speculative" and tiers["store_bytes"] else ""
    return [name, memory, gb(tiers["device_bytes"]), gb(tiers["host_bytes"]), gb(tiers["store_bytes"]) + twice,
            count(step["tokens_per_second"]), count(days), count(written / tokens * TOKENS / 1e12) if written else "",
            step["bottleneck"].replace("no single bottleneck; ", "")]


def sizing_table(plans, machine, memories, names):
    head = ["model", "host memory", "DEVICE GB", "HOST GB", "STORE GB", "tokens/s", "days for 1B tokens",
            "TB written for 1B tokens", "busiest part"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in names:
        folder = plans.model(name, MODELS[name])
        before = None
        for memory in memories:
            flags = ["--machine", machine] + SIZING
            if memory:
                flags += ["--host-memory", memory]
                if machine == "epyc-96":
                    flags += ["--device-memory", memory]
            plan = plans.plan(folder, flags)
            if not isinstance(plan, str):
                name = plan_name(name, plan)
            row = sizing_row(name, memory or "all", plan)
            if row[2:] != before:  # more memory changes nothing
                lines.append("| " + " | ".join(row) + " |")
            before = row[2:]
    return lines


def plan_name(name, plan):
    return name if ", " in name else f"{name}, {plan['parameters'] / 1e9:.3g}B"


def sizing(plans):
    small = ["Llama-3.2-1B", "Qwen3-4B", "Llama-3.1-8B", "Qwen3-14B", "Qwen3-32B", "Llama-3.1-70B"]
    replace("sizing.md", "4090", sizing_table(plans, "4090-workstation", ["32GiB", "60GiB", None], small))
    replace("sizing.md", "epyc", sizing_table(plans, "epyc-96", ["32GiB", "96GiB", None], small))
    large = ["Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B", "Llama-3.1-405B"]
    replace("sizing.md", "h200", sizing_table(plans, "h200", [None], small[:4]))
    replace("sizing.md", "dgx-h100", sizing_table(plans, "dgx-h100", [None], large))
    replace("sizing.md", "dgx-2", sizing_table(plans, "dgx-2", [None], large))


INFINITY = "ZeRO-Infinity"
PYTORCH_FLOPS = 39e12  # Megatron-LM (arXiv 1909.08053), abstract: what training sustains on one V100
# paper, model, layers, hidden, heads, GPUs, rows per GPU and micro-batch, micro-batches, slices, published, flags
PUBLISHED = [
    ("ZeRO-Offload", "13B", 65, 4096, 32, 1, 4, 128, 1, "above 30", []),
    ("ZeRO-3 Offload", "40B", 50, 8192, 64, 1, 8, 1, 1, "43 to 49", []),
    (INFINITY, "10B", 50, 4096, 32, 16, 8, 1, 1, "trains", []),
    (INFINITY, "50B", 62, 8192, 64, 16, 26, 1, 1, "trains", []),
    (INFINITY, "100B", 125, 8192, 64, 16, 24, 1, 1, "trains", []),
    (INFINITY, "500B", 124, 18432, 144, 16, 8, 1, 1, "trains", []),
    (INFINITY, "1T", 128, 25600, 200, 16, 7, 1, 1, "trains", []),
    (INFINITY, "500B", 124, 18432, 144, 512, 7, 1, 4, "49", []),
    (INFINITY, "10T", 200, 65536, 512, 512, 2, 1, 4, "43", []),
    (INFINITY, "20T", 205, 90112, 704, 512, 1, 1, 8, "34", []),
]


def needed(sentence):
    """Returns the budgets that a refusal says would be enough, as text."""
    found = re.search(r"(?:any one of|the least memory[^:]*): (.*?)(;|$)", sentence)
    return found.group(1) if found else sentence


def published(plans):
    head = ["paper", "model", "layers x hidden", "GPUs", "rows per GPU", "published TFLOPS per GPU",
            "planned TFLOPS per GPU", "with PyTorch's kernels", "step", "bottleneck", "GB per GPU: DEVICE, HOST, STORE"]
    pytorch = plans.machine("dgx-2", flops_per_second=PYTORCH_FLOPS)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for paper, name, layers, hidden, heads, cards, rows, accum, slices, says, flags in PUBLISHED:
        folder = plans.model(f"{name}-{hidden}", gpt(layers, hidden, heads))
        nodes = max(1, cards // 16)
        asked = ["--machine", "dgx-2", "--nodes", str(nodes), "--ranks-per-node", str(cards // nodes),
                 "--batch", str(rows), "--accum", str(accum), "--seq-len", "1024", "--precision", "fp16"]
        plan = plans.plan(folder, asked + flags)
        shown = f"{rows}" if accum == 1 else f"{rows} x {accum}"
        row = [paper, name, f"{layers} x {hidden:,}", str(cards), shown,
               says + (f"; sliced over {slices}" if slices > 1 else "")]
        if isinstance(plan, str):
            row += ["does not fit", "", "", needed(plan) + " of a node would do", ""]
        else:
            step, tiers = plan["step"], plan["tiers"]
            # forward, backward and one recomputation, as the papers count
            tokens = rows * accum * 1024
            work = 96 * tokens * layers * hidden ** 2 * (1 + 1024 / (6 * hidden) + 50304 / (16 * layers * hidden))
            each = cards // nodes
            slower = plans.plan(folder, ["--machine", pytorch] + asked[2:] + flags)["step"]
            row += [f"{work / step['seconds'] / 1e12:.1f}", f"{work / slower['seconds'] / 1e12:.1f}",
                    f"{step['seconds']:.3g} s", step["bottleneck"],
                    ", ".join(gb(tiers[t + "_bytes"] / each) or "0" for t in ("device", "host", "store"))]
        lines.append("| " + " | ".join(row) + " |")
    replace("published.md", "published", lines)
    replace("published.md", "adapters", adapters(plans))
    replace("published.md", "ranks", curve(plans))


def adapters(plans):
    """Plans the models of ZeRO-Infinity on one node, with adapters beside frozen layers."""
    head = ["model", "layers x hidden", "rows per GPU", "step", "bottleneck", "blocks by sections",
            "GB per GPU: DEVICE, HOST, STORE"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, layers, hidden, heads, rows in (("500B", 124, 18432, 144, 8), ("1T", 128, 25600, 200, 7)):
        folder = plans.model(f"{name}-{hidden}", gpt(layers, hidden, heads))
        plan = plans.plan(folder, ["--machine", "dgx-2", "--ranks-per-node", "16", "--batch", str(rows), "--accum", "1",
                                   "--seq-len", "1024", "--precision", "fp16", "--lora", "16"])
        step, tiers = plan["step"], plan["tiers"]
        lines.append("| " + " | ".join([
            name, f"{layers} x {hidden:,}", str(rows), f"{step['seconds']:.3g} s", step["bottleneck"],
            str(plan["chosen"]["sectioned_blocks"]),
            ", ".join(gb(tiers[t + "_bytes"] / 16) or "0" for t in ("device", "host", "store"))]) + " |")
    return lines


def curve(plans):
    """Plans the same work per GPU on 1 to 16 GPUs of a node, and on more nodes."""
    lines = ["| GPUs | step | tokens/s per GPU | tokens/s of all, over those of one |", "|---|---|---|---|"]
    folder = plans.model("10B-4096", gpt(50, 4096, 32))
    first = None
    for nodes, each in ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (2, 16), (8, 16), (32, 16)):
        plan = plans.plan(folder, ["--machine", "dgx-2", "--nodes", str(nodes), "--ranks-per-node", str(each),
                                   "--batch", "8", "--accum", "1", "--seq-len", "1024", "--precision", "fp16",
                                   "--place", "states=store"])
        rate = plan["step"]["tokens_per_second"]
        first = first or rate
        lines.append(f"| {nodes * each} | {plan['step']['seconds']:.3g} s | {count(rate / nodes / each)} | "
                     f"{rate / first:.3g} |")
    return lines


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    made = Plans(os.path.abspath(sys.argv[1]))
    for page in (sizing, published):
        if len(sys.argv) == 2 or sys.argv[2] == page.__name__:
            page(made)
