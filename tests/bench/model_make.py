#!/usr/bin/env python3
"""model_make.py: a case for bench_engine and `tide finetune` of any size, without holding it in memory: OUT/model, a Hugging Face folder
with random bf16 weights in shards, and OUT/data.jsonl, rows of ids in which there is something to learn. Needs numpy.

  model_make.py OUT                                              a Llama of 158 million parameters
  model_make.py OUT --family qwen3 --hidden 2560 --inner 9728 --layers 36 --heads 32 --kv-heads 8 --head-dim 128 --vocab 151936 --tied
                                                                 Qwen3-4B's shape"""
import argparse
import json
import os
import random

import numpy

SHARD_BYTES = 2 << 30
PIECE = 1 << 22


def tensors(a):
    """Name and shape of every parameter, in the order of the model."""
    heads, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    yield "model.embed_tokens.weight", (a.vocab, a.hidden)
    for layer in range(a.layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (a.hidden,)
        yield at + "self_attn.q_proj.weight", (heads, a.hidden)
        yield at + "self_attn.k_proj.weight", (keys, a.hidden)
        yield at + "self_attn.v_proj.weight", (keys, a.hidden)
        yield at + "self_attn.o_proj.weight", (a.hidden, heads)
        if a.family == "qwen3":
            yield at + "self_attn.q_norm.weight", (a.head_dim,)
            yield at + "self_attn.k_norm.weight", (a.head_dim,)
        yield at + "post_attention_layernorm.weight", (a.hidden,)
        yield at + "mlp.gate_proj.weight", (a.inner, a.hidden)
        yield at + "mlp.up_proj.weight", (a.inner, a.hidden)
        yield at + "mlp.down_proj.weight", (a.hidden, a.inner)
    yield "model.norm.weight", (a.hidden,)
    if not a.tied:
        yield "lm_head.weight", (a.vocab, a.hidden)


def count(shape):
    return int(numpy.prod(shape, dtype=numpy.int64))


def shards(a):
    """Runs of tensors of at most SHARD_BYTES."""
    run, size = [], 0
    for name, shape in tensors(a):
        more = 2 * count(shape)
        if run and size + more > SHARD_BYTES:
            yield run
            run, size = [], 0
        run.append((name, shape))
        size += more
    yield run


def write_shard(path, run, generator):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in run:
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * count(shape)]}
        at += 2 * count(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, shape in run:
            left = count(shape)
            while left > 0:
                n = min(left, PIECE)
                if len(shape) == 1:
                    values = numpy.ones(n, numpy.float32)
                else:
                    values = 0.02 * generator.standard_normal(n, numpy.float32)
                file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())
                left -= n


def config(a):
    kinds = {"llama": ("llama", "LlamaForCausalLM"), "qwen3": ("qwen3", "Qwen3ForCausalLM")}
    return {
        "architectures": [kinds[a.family][1]], "model_type": kinds[a.family][0], "hidden_size": a.hidden,
        "intermediate_size": a.inner, "num_hidden_layers": a.layers, "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim, "vocab_size": a.vocab, "hidden_act": "silu",
        "max_position_embeddings": max(a.seq, 64), "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": a.tied, "attention_bias": False, "torch_dtype": "bfloat16"}


def rows(a):
    draw = random.Random(a.seed)
    grams = [[draw.randrange(a.vocab) for _ in range(draw.randint(3, 9))] for _ in range(64)]
    for _ in range(a.rows):
        ids = []
        while len(ids) < a.seq:
            ids += draw.choice(grams)
        yield ids[:a.seq]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--family", default="llama", choices=["llama", "qwen3"])
    for name, default in (("hidden", 1024), ("inner", 2816), ("layers", 12), ("heads", 16), ("kv-heads", 8),
                          ("head-dim", 0), ("vocab", 8192), ("seq", 512), ("rows", 64), ("seed", 0)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--tied", action="store_true")
    a = p.parse_args()
    a.head_dim = a.head_dim or a.hidden // a.heads
    folder = os.path.join(a.out, "model")
    os.makedirs(folder, exist_ok=True)
    generator = numpy.random.default_rng(a.seed)
    runs = list(shards(a))
    where, total = {}, 0
    for i, run in enumerate(runs):
        file = "model.safetensors" if len(runs) == 1 else f"model-{i + 1:05}-of-{len(runs):05}.safetensors"
        write_shard(os.path.join(folder, file), run, generator)
        for name, shape in run:
            where[name] = file
            total += count(shape)
    if len(runs) > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {"total_size": 2 * total}, "weight_map": where}, file)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config(a), file, indent=2)
    with open(os.path.join(a.out, "data.jsonl"), "w") as file:
        for ids in rows(a):
            file.write(json.dumps({"input_ids": ids}) + "\n")
    print(f"parameters {total}")


if __name__ == "__main__":
    main()
