#!/usr/bin/env python3
"""Makes tests/run/bnb: tiny models that transformers 5.24 quantised with bitsandbytes 0.50.2 on the CPU (torch 2.15.0).
  bnb_folders.py OUT [NAME...]
Each case is a folder with config.json and model.safetensors as save_pretrained writes them, and
    plain/                the same model with dequantised weights in bf16, as transformers saves models that are not quantised
    expect.safetensors    ids [length], logits [vocab] after the last of them in fp32; of gpt2 those of the dequantised weights,
                          because bitsandbytes rounds the inputs of int8 layers, too
No row length is a multiple of 16 that is not one of 64: with such rows the AVX-512 kernel of this bitsandbytes uses wrong scales.
The case ending in "_128" has blocks of 128, as ROCm makes them. Needs torch, transformers, accelerate and bitsandbytes."""
import json, os, shutil, sys, tempfile
import torch
import bitsandbytes.functional as bnb
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

SIZES = dict(vocab_size=72, hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
NF4 = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")
CASES = {
    "llama_nested": (LlamaConfig(**SIZES), dict(NF4, bnb_4bit_use_double_quant=True,
                                                llm_int8_skip_modules=["lm_head", "model.layers.1.mlp", "v_proj"])),
    "qwen3_nf4": (Qwen3Config(**SIZES, head_dim=18, tie_word_embeddings=True), NF4),
    "qwen2_128": (Qwen2Config(**SIZES), dict(NF4, bnb_4bit_use_double_quant=True)),
    "gpt2_nested": (GPT2Config(vocab_size=72, n_embd=40, n_inner=104, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
                               attn_pdrop=0.0), dict(NF4, bnb_4bit_use_double_quant=True, llm_int8_skip_modules=["lm_head", "h.1.mlp.c_fc"])),
    "gpt2_int8": (GPT2Config(vocab_size=72, n_embd=40, n_inner=88, n_layer=1, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
                             attn_pdrop=0.0), dict(load_in_8bit=True)),
}


def reblock(folder, source, block):
    """Quantises the folder's weights again, in larger blocks."""
    tensors, plain = load_file(folder + "/model.safetensors"), load_file(source + "/model.safetensors")
    for name in [n[:-len(".absmax")] for n in tensors if n.endswith("weight.absmax")]:
        codes, state = bnb.quantize_4bit(plain[name], blocksize=block, quant_type="nf4", compress_statistics=True)
        tensors[name] = codes
        tensors.update({f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()})
    save_file(tensors, folder + "/model.safetensors", metadata={"format": "pt"})


def load(folder, **more):
    return AutoModelForCausalLM.from_pretrained(folder, device_map={"": "cpu"}, dtype=torch.bfloat16, **more)


def dequantised(folder, out, source, turned):
    """Writes plain/; weights in `turned` (of Conv1D) are transposed."""
    model = load(folder).dequantize(dtype=torch.bfloat16)
    state, names = model.state_dict(), load_file(source + "/model.safetensors")
    weights = {name: (state[name].T if name in turned else state[name]).to(torch.bfloat16).contiguous() for name in names}
    os.makedirs(out, exist_ok=True)
    save_file(weights, out + "/model.safetensors", metadata={"format": "pt"})
    shutil.copy(source + "/config.json", out)


def make(name, out):
    config, options = CASES[name]
    torch.manual_seed(len(name))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.02
    with tempfile.TemporaryDirectory() as source:
        model.save_pretrained(source)
        folder = os.path.join(out, name)
        shutil.rmtree(folder, ignore_errors=True)
        quantised = load(source, quantization_config=BitsAndBytesConfig(**options))
        quantised.save_pretrained(folder)
        if name.endswith("_128"):
            reblock(folder, source, 128)
        codes = [n for n, t in load_file(folder + "/model.safetensors").items()
                 if t.dtype in (torch.uint8, torch.int8) and n.endswith(".weight")]
        dequantised(folder, folder + "/plain", source, codes if config.model_type == "gpt2" else [])
        os.path.exists(folder + "/generation_config.json") and os.remove(folder + "/generation_config.json")
        exact = torch.nn.Module.float(load(folder))  # from_pretrained ignores another dtype than that of the folder
        for module in exact.modules():  # expand to fp32 directly
            if getattr(getattr(module, "weight", None), "quant_state", None) is not None:
                module.weight.quant_state.dtype = torch.float32
        if config.model_type == "gpt2":
            exact = exact.dequantize(dtype=torch.float32).float()
        ids = torch.randint(0, 72, (13,), generator=torch.Generator().manual_seed(5))
        with torch.no_grad():  # in eval mode bitsandbytes repacks codes for AMX, which rounds to bf16
            logits = exact.train()(input_ids=ids[None]).logits[0, -1].float()
        save_file({"ids": ids.int(), "logits": logits.contiguous()}, folder + "/expect.safetensors")


if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        make(name, sys.argv[1])
