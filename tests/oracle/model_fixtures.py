#!/usr/bin/env python3
"""Makes tests/model/fixtures: tiny models of every family, and the results of transformers for them.

    model_fixtures.py OUT [NAME...]

Each case is a folder with config.json and model.safetensors as transformers writes them (some with the keys of
transformers 4), and expect.safetensors with
    ids        [rows, length], the input; labels are the same, shifted inside
    logits     in double precision, stored as fp32
    loss       the mean over all targets
    grad.NAME  the gradient of every parameter
    bf16.logits, bf16.grad.NAME: one number each: the error of transformers in bf16, as
               |difference| / |reference| (Euclidean norms)
bf16 represents all weights exactly, so that both types have the same reference."""
import json, os, shutil, sys
import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig,
                          Qwen2Config, Qwen3Config)

TINY = dict(vocab_size=72, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)

def tiny(kind, **more):
    return kind(**{**TINY, **more})

CASES = {
    "gpt2": dict(config=GPT2Config(vocab_size=72, n_embd=32, n_layer=2, n_head=4, n_positions=24,
                                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "gpt2_untied": dict(config=GPT2Config(vocab_size=67, n_embd=24, n_layer=2, n_head=2, n_positions=20, n_inner=40,
                                          activation_function="gelu", scale_attn_by_inverse_layer_idx=True,
                                          layer_norm_epsilon=1e-4, tie_word_embeddings=False),
                        bare=True),
    "llama": dict(config=tiny(LlamaConfig)),
    "llama3": dict(config=tiny(LlamaConfig, attention_bias=True, mlp_bias=True, head_dim=12, tie_word_embeddings=True,
                               rms_norm_eps=1e-5, num_hidden_layers=1,
                               rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0,
                                                    low_freq_factor=1.0, high_freq_factor=4.0,
                                                    original_max_position_embeddings=16))),
    "llama_yarn": dict(config=tiny(LlamaConfig, num_hidden_layers=1), dtype=torch.float32,
                       old=dict(rope_theta=10000.0, torch_dtype="float32",
                                rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=16))),
    "llama_linear": dict(config=tiny(LlamaConfig, num_hidden_layers=1, hidden_act="gelu_pytorch_tanh"),
                         old=dict(rope_theta=1000.0, torch_dtype="bfloat16",
                                  rope_scaling=dict(type="linear", factor=2.5))),
    "llama_dynamic": dict(config=tiny(LlamaConfig, num_hidden_layers=1), dtype=torch.float16,
                          old=dict(torch_dtype="float16", rope_scaling=dict(type="dynamic", factor=2.0))),
    "llama_yarn_long": dict(config=tiny(LlamaConfig, num_hidden_layers=1, max_position_embeddings=8,
                                        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0))),
    "llama_dynamic_long": dict(config=tiny(LlamaConfig, num_hidden_layers=1, max_position_embeddings=8),
                               old=dict(rope_scaling=dict(type="dynamic", factor=4.0))),
    "llama_pad": dict(config=tiny(LlamaConfig, num_hidden_layers=1, pad_token_id=5, intermediate_size=1), pad=5),
    "mistral": dict(config=tiny(MistralConfig, sliding_window=7)),
    "mistral_layers": dict(config=tiny(MistralConfig, sliding_window=4),
                           old=dict(layer_types=["full_attention", "sliding_attention"])),
    "mistral_wide": dict(config=tiny(MistralConfig, sliding_window=None, head_dim=16, num_key_value_heads=1,
                                     num_hidden_layers=1)),
    "qwen2": dict(config=tiny(Qwen2Config)),
    "qwen2_window": dict(config=tiny(Qwen2Config, tie_word_embeddings=True, use_sliding_window=True, sliding_window=6,
                                     max_window_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen2_both": dict(config=tiny(Qwen2Config, num_hidden_layers=1), old=dict(tie_word_embeddings=True)),
    "qwen3_pad": dict(config=tiny(Qwen3Config, num_hidden_layers=1, head_dim=8, tie_word_embeddings=True),
                      old=dict(pad_token_id=-1), pad=71),
    "qwen3": dict(config=tiny(Qwen3Config, head_dim=16, tie_word_embeddings=True)),
    "qwen3_sharded": dict(config=tiny(Qwen3Config, head_dim=10, attention_bias=True, num_key_value_heads=4),
                          shard="24KB"),
}

def randomize(model):
    """Sets random weights that affect the result."""
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                p.copy_(1.0 + 0.2 * r if "norm" in name or "ln_" in name and name.endswith("weight") else 0.1 * r)
            else:
                p.copy_(r * (0.5 if "embed" in name or "wte" in name or "wpe" in name else 1.2 / p.shape[1] ** 0.5))
            p.copy_(p.bfloat16().float())

def run(folder, dtype, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.eval()  # no dropout
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    return out.logits.detach(), out.loss.detach(), {n: p.grad for n, p in model.named_parameters()}

def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-300)).float()

def respell(folder, old, model_type):
    """Writes config.json with the keys of transformers 4, or with other keys that transformers reads."""
    with open(folder + "/config.json") as f:
        config = json.load(f)
    for key in ("rope_parameters", "dtype", "layer_types"):
        config.pop(key, None)
    config.update(old)
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f, indent=2)

def make(out, name, case):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(case["config"], dtype=torch.float32)
    randomize(model)
    model.to(case.get("dtype", torch.bfloat16)).save_pretrained(folder, max_shard_size=case.get("shard", "1GB"))
    if "old" in case:
        respell(folder, case["old"], case["config"].model_type)
    if case.get("bare"):  # files of the model without a head have names without the prefix
        path = folder + "/model.safetensors"
        tensors = {k.removeprefix("transformer."): v for k, v in load_file(path).items()}
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 4, 4, dtype=torch.bool)  # a mask that old files contain
        save_file(tensors, path, metadata={"format": "pt"})
    config = AutoConfig.from_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (2, 20), generator=torch.Generator().manual_seed(11))
    if "pad" in case:
        ids[0, 3] = ids[1, 7] = ids[1, 8] = case["pad"]
    logits, loss, grads = run(folder, torch.float64, ids)
    half_logits, _, half_grads = run(folder, torch.bfloat16, ids)
    expect = {"ids": ids.int(), "logits": logits.float(), "loss": loss.float().reshape(1),
              "bf16.logits": distance(half_logits, logits).reshape(1)}
    for key, grad in grads.items():
        expect["grad." + key] = grad.float().contiguous()
        expect["bf16.grad." + key] = distance(half_grads[key], grad).reshape(1)
    save_file(expect, folder + "/expect.safetensors")
    print(name, sum(p.numel() for p in model.parameters()), float(loss), float(expect["bf16.logits"]))

def main():
    out, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        make(out, name, CASES[name])

main()
