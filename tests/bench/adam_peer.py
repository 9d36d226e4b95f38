"""adam_peer.py COUNT: times DeepSpeed's CPU Adam and torch's fused AdamW for bench_adam, which writes a name per line and reads
`seconds X`. Variants with casts copy bf16 gradients to fp32 and new weights to bf16, as ZeRO-Offload does."""
import sys
import time

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

count = int(sys.argv[1])
g16 = (torch.randn(count) * 1e-3).bfloat16()
w16 = torch.empty(count, dtype=torch.bfloat16)
MAKE = {
    "deepspeed": lambda p: DeepSpeedCPUAdam(p, lr=1e-3, weight_decay=0.01, adamw_mode=True),
    "torch_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01, fused=True),
}
made = {}


def optimizer(name):
    if name not in made:
        made.clear()
        p = torch.nn.Parameter(torch.randn(count))
        p.grad = torch.randn(count) * 1e-3
        made[name] = (p, MAKE[name]([p]))
    return made[name]


for line in sys.stdin:
    name = line.strip()
    with_casts = name.endswith("_with_casts")
    p, step = optimizer(name.removesuffix("_with_casts").removesuffix("_bare"))
    begin = time.perf_counter()
    if with_casts:
        p.grad.copy_(g16)
    step.step()
    if with_casts:
        w16.copy_(p.data)
    print("seconds %.6f" % (time.perf_counter() - begin), flush=True)
