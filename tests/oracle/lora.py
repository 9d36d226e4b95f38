#!/usr/bin/env python3
"""Makes tests/model/lora: for each case a PEFT folder (start), its adapters after 50 fp32 AdamW steps of PyTorch
(end.safetensors), and the loss and gradient norm of the steps (curve.txt) and of eight more steps on a bf16 base
(bf16.txt). tests/model/test_lora.c has the same table of cases. Dropout takes tide's random numbers
(kernels/kern.h, offload/model/adapter.c).
Made with torch 2.15, transformers 5.23, peft 0.21; dropout also needs numpy and xxhash.

    lora.py TESTS/model [CASE...]"""
import json, os, sys
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM

CASES = {
    "llama": ("llama", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "llama_qv": ("llama", dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    "qwen2": ("qwen2", dict(r=3, lora_alpha=6, target_modules=["k_proj", "up_proj", "down_proj"])),
    "qwen3": ("qwen3", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "gpt2": ("gpt2", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "mistral": ("mistral", dict(r=2, lora_alpha=4, target_modules=["o_proj", "gate_proj"],
                                modules_to_save=["model.norm", "lm_head"])),
    "llama_dropout": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"],
                                    lora_dropout=0.25)),
    "llama_dora": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                                 use_dora=True)),
    "llama_dora_dropout": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                                         use_dora=True, lora_dropout=0.25)),
    "gpt2_dora": ("gpt2", dict(r=2, lora_alpha=3, target_modules=["c_attn", "attn.c_proj"], use_dora=True)),
}
SEED = 11
ROLES = {"q_proj": 5, "k_proj": 5, "v_proj": 5, "o_proj": 9, "gate_proj": 13, "up_proj": 13, "down_proj": 15}  # model_role

root = sys.argv[1]
only = sys.argv[2:]
rows = [json.loads(line)["input_ids"] for line in open(root + "/curve/data.jsonl")]

def philox(seed, stream, positions):
    """The four words at the positions, in rows."""
    import numpy as np
    low = np.uint64(0xffffffff)
    words = [positions & low, positions >> np.uint64(32), np.uint64(stream) & low, np.uint64(stream) >> np.uint64(32)]
    key = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [(p1 >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]), p1 & low,
                 (p0 >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]), p0 & low]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return np.stack([word * np.ones_like(positions) for word in words], axis=1)

class Dropout(torch.nn.Module):
    """Dropout of one role's adapters in a layer, in step Dropout.step."""
    step = 0

    def __init__(self, rate, layer, role):
        super().__init__()
        self.rate, self.stream = rate, (layer + 2 << 8) + role  # of block `layer` + 1; the embedding is block 0

    def forward(self, x):
        import numpy as np, xxhash
        use = xxhash.xxh3_64_intdigest(b"dropout of adapters\0")
        words = philox(SEED, use, np.array([Dropout.step], dtype=np.uint64))[0]
        words = philox((int(words[1]) << 32 | int(words[0])) | 1, self.stream, np.arange((x.numel() + 3) // 4, dtype=np.uint64))
        unit = (words.reshape(-1)[:x.numel()] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
        kept = torch.from_numpy((unit >= np.float32(self.rate)).astype(np.float32)).reshape(x.shape)
        return x * kept / (1 - self.rate)

def state(model):
    return {k: v.detach().clone().contiguous() for k, v in get_peft_model_state_dict(model).items()}

def adapted(base, options, dtype):
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(f"{root}/fixtures/{base}", dtype=dtype)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=base == "gpt2", **options))
    model.eval()
    for path, module in model.named_modules():
        if options.get("lora_dropout") and hasattr(module, "lora_dropout"):
            layer = int(path.split(".layers.")[1].split(".")[0])
            module.training = True  # outside of training, PEFT's DoRA does not drop its inputs
            module.lora_dropout["default"] = Dropout(options["lora_dropout"], layer, ROLES[path.split(".")[-1]])
    return model

def train(model, steps, batch, lr, path):
    """Uses autocast if the base is bf16; the adapters stay fp32."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optim = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    lines = []
    for step in range(steps):
        Dropout.step = step
        ids = torch.tensor([rows[(batch * step + i) % 32] for i in range(batch)])
        with torch.autocast("cpu", torch.bfloat16, enabled=model.dtype == torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optim.step()
        optim.zero_grad()
        lines.append(f"{loss.item():.9g} {norm.item():.9g}\n")
    with open(path, "w") as f:
        f.writelines(lines)
    return lines

for name, (base, options) in CASES.items():
    if only and name not in only:
        continue
    model = adapted(base, options, torch.float32)
    at = f"{root}/lora/{name}"
    os.makedirs(at + "/start", exist_ok=True)
    model.save_pretrained(at + "/start")
    for extra in ("README.md",):
        if os.path.exists(f"{at}/start/{extra}"):
            os.remove(f"{at}/start/{extra}")
    lines = train(model, 50, 2, 1e-2, f"{at}/curve.txt")
    save_file(state(model), f"{at}/end.safetensors")
    half = adapted(base, options, torch.bfloat16)
    for p in half.parameters():
        p.data = p.data.float() if p.requires_grad else p.data  # modules to save, too: PEFT would update them in bf16
    set_peft_model_state_dict(half, load_file(f"{at}/end.safetensors"))
    print(name, lines[0].strip(), lines[-1].strip(), train(half, 8, 8, 1e-3, f"{at}/bf16.txt")[-1].strip())
