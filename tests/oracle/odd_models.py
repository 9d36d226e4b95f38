#!/usr/bin/env python3
"""Compares the first fp32 step of `tide finetune` with transformers on random models of every family:

    python tests/oracle/odd_models.py build/tools/tide [COUNT [SEED]]     needs torch, transformers

Prints one line per model; folders of models that differ are kept."""
import json, os, random, shutil, subprocess, sys, tempfile
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

BOUNDS = (1e-5, 1e-4)
FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3"]


def rope(rng, config, old):
    """Adds random RoPE parameters; returns their kind and the longest row's length."""
    kind = rng.choice(["default", "default", "linear", "dynamic", "yarn", "yarn", "llama3"])
    theta = rng.choice([100.0, 10000.0, 5e5])
    factor = rng.choice([1.0, 1.5, 2.0, 4.0, 8.0])
    more = {}
    if kind == "yarn":
        more = {k: v for k, v in dict(attention_factor=0.75, beta_fast=rng.choice([16, 64]), beta_slow=2, mscale=0.8,
                                      mscale_all_dim=0.5, truncate=False).items() if rng.random() < 0.3}
        if rng.random() < 0.5:
            more["original_max_position_embeddings"] = rng.choice([16, 32])
    if kind == "llama3":
        more = dict(low_freq_factor=1.0, high_freq_factor=rng.choice([2.0, 4.0]), original_max_position_embeddings=16)
    positions = config["max_position_embeddings"]
    reach = positions if kind == "default" else int(factor * more.get("original_max_position_embeddings", positions))
    if kind == "default":
        config.update(dict(rope_theta=theta) if old else dict(rope_parameters=dict(rope_type="default", rope_theta=theta)))
    elif old:
        config.update(rope_theta=theta, rope_scaling={rng.choice(["type", "rope_type"]): kind, "factor": factor, **more})
    else:
        config["rope_parameters"] = dict(rope_type=kind, rope_theta=theta, factor=factor, **more)
    return kind, max(positions, reach)


def make_config(rng, family):
    """Returns a random config, the kind of its RoPE, and the longest row's length."""
    old = rng.random() < 0.5
    heads = rng.choice([1, 2, 3, 4, 6])
    size = rng.choice([2, 4, 6, 10, 16, 24]) if family != "gpt2" else rng.choice([1, 3, 5, 8, 16])
    vocab = rng.choice([31, 64, 100, 257])
    config = dict(model_type=family, vocab_size=vocab)
    if family == "gpt2":
        config.update(n_embd=heads * size, n_layer=rng.randint(1, 3), n_head=heads, n_positions=40, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0)
        extra = dict(n_inner=rng.choice([1, 7, 40]), activation_function=rng.choice(["gelu", "relu", "gelu_new", "silu"]),
                     layer_norm_epsilon=1e-3, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True,
                     reorder_and_upcast_attn=True, tie_word_embeddings=False, pad_token_id=3, sliding_window=4)
        config.update({k: v for k, v in extra.items() if rng.random() < 0.35})
        return config, "learned", 40
    layers = rng.randint(1, 4)
    kv = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    config.update(hidden_size=heads * size, intermediate_size=rng.choice([1, 2, 17, 48]), num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=rng.choice([20, 40, 64]),
                  rms_norm_eps=rng.choice([1e-6, 1e-5, 1e-3]))
    if family == "qwen3" or rng.random() < 0.4:
        config["head_dim"] = rng.choice([2, 6, 8, 20, 32])
    extra = dict(hidden_act=rng.choice(["silu", "gelu", "relu", "gelu_pytorch_tanh"]), tie_word_embeddings=True,
                 pad_token_id=rng.choice([0, 3, vocab - 1, -1, -5]), attention_bias=True, mlp_bias=True,
                 use_sliding_window=True, max_window_layers=rng.choice([0, 1, 2]), sliding_window=rng.choice([1, 3, 8]),
                 attention_dropout=0.0, pretraining_tp=1, use_cache=False, eos_token_id=3)
    config.update({k: v for k, v in extra.items() if rng.random() < 0.45})
    listed = rng.random() < 0.5
    if family == "mistral" and not listed and rng.random() < 0.5:
        config["sliding_window"] = None
    windowed = (config.get("sliding_window", 4096) is not None and family == "mistral") or \
        (family in ("qwen2", "qwen3") and config.get("use_sliding_window"))
    if listed:
        kinds = ["full_attention", "sliding_attention"] if windowed else ["full_attention"]
        config["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
        config.setdefault("head_dim", size)  # transformers' Ministral needs it
    kind, reach = rope(rng, config, old)
    if rng.random() < 0.5:
        config["torch_dtype" if old else "dtype"] = rng.choice(["float32", "bfloat16", "float16"])
    return config, kind, reach


def randomize(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                p.copy_(1.0 + 0.2 * r if "norm" in name or "ln_" in name and name.endswith("weight") else 0.1 * r)
            else:
                p.copy_(r * (0.5 if "embed" in name or "wte" in name or "wpe" in name else 1.2 / p.shape[1] ** 0.5))


def write_weights(rng, folder, model):
    """Writes weights in random types and files."""
    tensors = {k: v.detach().clone().contiguous() for k, v in model.state_dict().items()}
    tied = model.config.tie_word_embeddings
    both = rng.choice(["", "", "same", "other"]) if tied else ""
    tensors.pop("lm_head.weight") if tied else None
    if both:
        table = next(v for k, v in tensors.items() if k.endswith(("wte.weight", "embed_tokens.weight")))
        tensors["lm_head.weight"] = table.clone() * (1.0 if both == "same" else 0.8)
    how = rng.choice(["f32", "bf16", "mixed"])
    types = {"f32": [torch.float32], "bf16": [torch.bfloat16], "mixed": [torch.float32, torch.bfloat16, torch.float16]}[how]
    for k in tensors:
        if "lm_head" not in k and "embed_tokens" not in k and "wte" not in k:
            tensors[k] = tensors[k].to(rng.choice(types))
    if rng.random() < 0.3 and model.config.model_type == "gpt2":
        tensors = {k.removeprefix("transformer."): v for k, v in tensors.items()}
    names = sorted(tensors)
    if rng.random() < 0.3:
        cut = rng.randint(1, len(names) - 1)
        files = {"model-00001-of-00002.safetensors": names[:cut], "model-00002-of-00002.safetensors": names[cut:]}
        for file, part in files.items():
            save_file({k: tensors[k] for k in part}, f"{folder}/{file}", metadata={"format": "pt"})
        with open(folder + "/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {}, "weight_map": {k: file for file, part in files.items() for k in part}}, f)
    else:
        save_file(tensors, folder + "/model.safetensors", metadata={"format": "pt"})
    return f"{how}{' both:' + both if both else ''}{' shards' if len(names) and not os.path.exists(folder + '/model.safetensors') else ''}"


def write_rows(rng, path, config, reach):
    vocab = config["vocab_size"]
    length = rng.choice([reach, min(reach, 24), 5]) if reach < 200 else 24
    rows = []
    for i in range(3):
        ids = [rng.randrange(vocab) for _ in range(length if i == 0 else rng.randint(2, length))]
        pad = config.get("pad_token_id")
        for j in range(len(ids)):
            if pad is not None and rng.random() < 0.2:
                ids[j] = pad % vocab
        labels = [-100 if rng.random() < 0.2 else t for t in ids]
        labels[-1] = ids[-1]
        rows.append({"input_ids": ids, "labels": labels})
    with open(path, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    return rows


def first_step(folder, rows):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    longest = max(len(r["input_ids"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [0] * (longest - len(r["input_ids"])) for r in rows])
    labels = torch.tensor([r["labels"] + [-100] * (longest - len(r["labels"])) for r in rows])
    logits = model(input_ids=ids, use_cache=False).logits.float()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1),
                                             ignore_index=-100)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30)
    return loss.item(), norm.item()


def one(tide, seed, directory):
    rng = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    case = f"{directory}/odd{seed}"
    folder = case + "/model"
    os.makedirs(folder)
    config, kind, reach = make_config(rng, family)
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f, indent=2)
    if kind == "dynamic" and config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]) == 2:
        return True  # transformers divides by zero
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    randomize(model, seed)
    weights = write_weights(rng, folder, model)
    rows = write_rows(rng, case + "/rows.jsonl", config, reach)
    loss, norm = first_step(folder, rows)
    log = case + "/log.jsonl"
    ran = subprocess.run([tide, "finetune", "--model", folder, "--data", case + "/rows.jsonl", "--out", case + "/out", "--log", log,
                          "--steps", "1", "--batch", "3", "--precision", "fp32", "--host-memory", "400M",
                          "--device-memory", "400M", "-q"], capture_output=True, text=True)
    what = f"{seed} {family} {kind} {weights}"
    if ran.returncode != 0:
        print(f"{what}: REFUSED {ran.stderr.strip()}")
        return False
    step = json.loads(open(log).readline())
    apart = [abs(step["loss"] - loss) / loss, abs(step["grad_norm"] - norm) / norm]
    right = all(a < b for a, b in zip(apart, BOUNDS))
    print(f"{what}: loss {step['loss']:.6f} {apart[0]:.1e}  norm {step['grad_norm']:.6f} {apart[1]:.1e}  {'ok' if right else 'APART'}")
    if right:
        shutil.rmtree(case)
    return right


directory = tempfile.mkdtemp(prefix="odd-models-")
count, seed = (int(v) for v in (sys.argv[2:] + ["50", "0"][len(sys.argv) - 2:]))
done = [one(os.path.abspath(sys.argv[1]), s, directory) for s in range(seed, seed + count)]
print(f"{sum(done)} of {count} agree" + ("" if all(done) else f"; the others are in {directory}"))
sys.exit(0 if all(done) else 1)
