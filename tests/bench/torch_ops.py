#!/usr/bin/env python3
"""torch_ops.py: times torch on the operations of bench_ops_cuda, on a machine with a GPU.
  torch_ops.py [--quick] [--only WORD] [--seconds N] [--ours FILE] [--library FILE]
Prints `name value unit` lines: `torch_<name>` for eager mode and, for some operations, `torch_<name>_compiled` for torch.compile. --ours
names a file with the lines of bench_ops_cuda from the same machine, for a table of ratios (ours over theirs, higher is better). --library
names libbench_ops_cuda.so, to measure our lines in this process, in turns with torch's. A failed operation is reported, and the others run.
After N seconds (600) no further operation is started."""
import argparse
import ctypes
import math
import os
import statistics
import sys
import tempfile
import time

HIDDEN, INNER, VOCAB, HEADS, KV_HEADS, DIM = 4096, 14336, 128256, 32, 8, 128
QKV = (HEADS + 2 * KV_HEADS) * DIM
SHAPES = {"qkv": (QKV, HIDDEN), "up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER), "head": (VOCAB, HIDDEN), "14b_up": (2 * 17408, 5120),
          "14b_down": (5120, 17408), "32b_up": (2 * 25600, 5120), "32b_down": (5120, 25600)}


class Bench:
    def __init__(self, a):
        import torch
        self.torch, self.a = torch, a
        self.tokens = 4096 if a.quick else 16384
        self.began = time.monotonic()
        self.figures = {}
        self.end = self.began + a.seconds
        self.library = ctypes.CDLL(a.library) if a.library else None
        self.mine = {}

    def ours(self, words):
        """Runs our measurements whose names contain a word of `words`; prints and keeps their lines."""
        if self.library is None or time.monotonic() > self.end + 60:
            return
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        sys.stdout.flush()
        arguments = [b"bench_ops_cuda", b"--only", words.encode()] + ([b"--quick"] if self.a.quick else [])
        with tempfile.TemporaryFile() as file:
            kept = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                self.library.bench_ops_cuda(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))
                ctypes.CDLL(None).fflush(None)
            finally:
                os.dup2(kept, 1)
                os.close(kept)
            file.seek(0)
            text = file.read().decode()
        print(text, end="", flush=True)
        self.mine.update(lines_of(text.splitlines()))

    def seconds(self, f):
        """Median seconds of a call, from batches of about 20 ms."""
        torch = self.torch
        for _ in range(3):
            f()
        torch.cuda.synchronize()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def batch(count):
            start.record()
            for _ in range(count):
                f()
            stop.record()
            torch.cuda.synchronize()
            return start.elapsed_time(stop) * 1e-3 / count

        one = batch(1)
        count = max(1, min(1000, int(0.02 / max(one, 1e-7)) + 1))
        return statistics.median(batch(count) for _ in range(2 if self.a.quick else 5))

    def say(self, name, amount, unit, f):
        """Times the function that f() returns; a call moves or computes `amount` bytes or flops."""
        if self.a.only and self.a.only not in name:
            return
        if time.monotonic() > self.end:
            print(f"# {name}: no time was left", flush=True)
            return
        try:
            scale = {"GB/s": 1e-9, "TFLOP/s": 1e-12}[unit]
            value = amount / self.seconds(f()) * scale
            self.figures[name] = value
            print(f"torch_{name} {value:.1f} {unit}", flush=True)
        except Exception as error:  # one op that fails must not end the others
            print(f"# {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)

    def rand(self, *shape, dtype=None, grad=False):
        torch = self.torch
        x = torch.empty(*shape, device="cuda", dtype=dtype or torch.bfloat16).normal_(0, 0.5)
        return x.requires_grad_(grad)

    def both(self, name, amount, unit, f, *inputs):
        """Times f, eager and compiled."""
        self.say(name, amount, unit, lambda: lambda: f(*inputs))
        self.say(name + "_compiled", amount, unit, lambda: compiled(self.torch, f, inputs))

    def backward(self, name, amount, unit, f, inputs, dy, more=()):
        """Times the gradient of f with respect to `inputs` that require one, eager and compiled."""
        def timed(g):
            y = g(*inputs, *more)
            wanted = [x for x in inputs if x.requires_grad]
            return lambda: self.torch.autograd.grad(y, wanted, dy, retain_graph=True)
        self.say(name, amount, unit, lambda: timed(f))
        self.say(name + "_compiled", amount, unit, lambda: timed(self.torch.compile(f, dynamic=False)))


def compiled(torch, f, inputs):
    g = torch.compile(f, dynamic=False)
    return lambda: g(*inputs)


def memory_bound(b):
    torch = b.torch
    F = torch.nn.functional
    row, wide = 2.0 * b.tokens * HIDDEN, 2.0 * b.tokens * INNER
    from_, to = b.rand(1 << 29), b.rand(1 << 29)
    b.say("copy_within", 4.0 * (1 << 29), "GB/s", lambda: lambda: to.copy_(from_))
    del from_, to
    x, add, w = b.rand(b.tokens, HIDDEN), b.rand(b.tokens, HIDDEN), b.rand(HIDDEN)

    def norm(x, w):
        return F.rms_norm(x, (HIDDEN,), w, 1e-5)

    def norm_add(x, add, w):
        s = x + add
        return s, F.rms_norm(s, (HIDDEN,), w, 1e-5)

    b.both("norm_rms", 2 * row, "GB/s", norm, x, w)
    b.both("norm_rms_add", 4 * row, "GB/s", norm_add, x, add, w)
    xg, wg, dy = b.rand(b.tokens, HIDDEN, grad=True), b.rand(HIDDEN, grad=True), b.rand(b.tokens, HIDDEN)
    b.backward("norm_rms_grad", 3 * row, "GB/s", norm, [xg, wg], dy)
    bias = b.rand(HIDDEN, grad=True)

    def layer(x, w, bias):
        return F.layer_norm(x, (HIDDEN,), w, bias, 1e-5)

    def layer_add(x, add, w, bias):
        s = x + add
        return s, layer(s, w, bias)

    b.both("norm_layer_add", 4 * row, "GB/s", layer_add, x, add, w, bias.detach())
    b.backward("norm_layer_grad", 3 * row, "GB/s", layer, [xg, wg, bias], dy)
    del x, add, xg, dy
    both = b.rand(b.tokens, 2 * INNER)

    def swiglu(both):
        return F.silu(both[:, :INNER]) * both[:, INNER:]

    b.both("swiglu", 3 * wide, "GB/s", swiglu, both)
    b.backward("swiglu_grad", 5 * wide, "GB/s", swiglu, [both.detach().requires_grad_()], b.rand(b.tokens, INNER))
    del both
    gate = b.rand(b.tokens, INNER, grad=True)

    def gelu(gate):
        return F.gelu(gate, approximate="tanh")

    b.both("gelu_tanh", 2 * wide, "GB/s", gelu, gate.detach())
    b.backward("gelu_tanh_grad", 3 * wide, "GB/s", gelu, [gate], b.rand(b.tokens, INNER))
    del gate
    qk, cos, sin = b.rand(b.tokens, HEADS + KV_HEADS, DIM), b.rand(b.tokens, 1, DIM), b.rand(b.tokens, 1, DIM)

    def rope(qk, cos, sin):
        half = torch.cat((-qk[..., DIM // 2:], qk[..., :DIM // 2]), -1)
        return qk * cos + half * sin

    b.both("rope", 4.0 * b.tokens * (HEADS + KV_HEADS) * DIM, "GB/s", rope, qk, cos, sin)
    del qk
    a, c = b.rand(b.tokens * INNER), b.rand(b.tokens * INNER)
    b.both("add", 3 * wide, "GB/s", torch.add, a, c)
    del a, c
    count = 1 << 27
    p = b.rand(count, dtype=torch.float32, grad=True)
    p.grad = b.rand(count, dtype=torch.float32)
    adam = torch.optim.AdamW([p], lr=1e-4, fused=True)
    adam.step()
    b.say("adamw_fp32", 28.0 * count, "GB/s", lambda: adam.step)


def sums(b):
    """Gradients of head norms, an embedding and a bias."""
    torch = b.torch
    F = torch.nn.functional
    row = 2.0 * b.tokens * HIDDEN
    x, w = b.rand(b.tokens, HEADS, DIM, grad=True), b.rand(DIM, grad=True)

    def norm(x, w):
        return F.rms_norm(x, (DIM,), w, 1e-6)

    b.both("norm_qk", 2 * row, "GB/s", norm, x.detach(), w.detach())
    b.backward("norm_qk_grad", 3 * row, "GB/s", norm, [x, w], b.rand(b.tokens, HEADS, DIM))
    del x
    ids = torch.randint(VOCAB, (b.tokens,), device="cuda")
    b.backward("embed_grad", row + 2.0 * VOCAB * HIDDEN, "GB/s", lambda table: F.embedding(ids, table),
               [b.rand(VOCAB, HIDDEN, grad=True)], b.rand(b.tokens, HIDDEN))
    dy = b.rand(b.tokens, QKV)
    b.both("bias_grad", 2.0 * b.tokens * QKV, "GB/s", lambda dy: dy.sum(0), dy)


def products(b):
    torch = b.torch
    cube = b.rand(8192, 8192), b.rand(8192, 8192)
    b.say("linear_8192", 2.0 * 8192 ** 3, "TFLOP/s", lambda: lambda: cube[0] @ cube[1].T)
    for name, (n, k) in SHAPES.items():
        m = b.tokens // 4 if name == "head" else b.tokens
        flops = 2.0 * m * n * k
        x, w, dy = b.rand(m, k), b.rand(n, k), b.rand(m, n)
        b.say(f"linear_{name}", flops, "TFLOP/s", lambda: lambda: x @ w.T)
        if name == "qkv":
            bias = b.rand(n)
            b.say("linear_qkv_bias", flops, "TFLOP/s", lambda: lambda: torch.nn.functional.linear(x, w, bias))
        b.say(f"linear_{name}_dx", flops, "TFLOP/s", lambda: lambda: dy @ w)
        b.say(f"linear_{name}_dw", flops, "TFLOP/s", lambda: lambda: dy.T @ x)


def attention(b, rows, length, dim):
    """Attention with 64 query heads and 8 key heads. Bits of cuDNN's gradient, and of flash attention's unless torch is
    deterministic, differ from run to run."""
    torch = b.torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    F = torch.nn.functional
    pairs = rows * 64 * length * length / 2.0
    q = b.rand(rows, length, 64, dim).transpose(1, 2).detach().requires_grad_()
    k, v = (b.rand(rows, length, 8, dim).transpose(1, 2).detach().requires_grad_() for _ in "kv")
    dy = b.rand(rows, length, 64, dim).transpose(1, 2)
    name = f"{length // 1024}k" + ("_64" if dim == 64 else "")
    figures = {"attention": [], "attention_grad": []}
    for kind, word in (("FLASH_ATTENTION", "flash"), ("FLASH_ATTENTION", "flash_deterministic"), ("CUDNN_ATTENTION", "cudnn")):

        def forward():
            with sdpa_kernel(getattr(SDPBackend, kind)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        def gradient():
            o = forward()
            return lambda: torch.autograd.grad(o, (q, k, v), dy, retain_graph=True)

        torch.use_deterministic_algorithms(word == "flash_deterministic")
        if word != "flash_deterministic":
            b.say(f"attention_{name}_{word}", 4.0 * dim * pairs, "TFLOP/s", lambda: forward)
        b.say(f"attention_grad_{name}_{word}", 10.0 * dim * pairs, "TFLOP/s", gradient)
        torch.use_deterministic_algorithms(False)
        for part, found in figures.items():
            found += [v for n, v in b.figures.items() if n == f"{part}_{name}_{word}"]
    for part, found in figures.items():
        if found:
            b.figures[f"{part}_{name}"] = max(found)


def loss(b):
    F = b.torch.nn.functional
    x, w = b.rand(b.tokens, HIDDEN, grad=True), b.rand(VOCAB, HIDDEN, grad=True)
    labels = b.torch.randint(VOCAB, (b.tokens,), device="cuda")

    def whole(x, w, labels):
        return F.cross_entropy((x @ w.T).float(), labels, reduction="sum")

    def step(f):
        return lambda: b.torch.autograd.grad(f(x, w, labels), (x, w))

    flops = 6.0 * b.tokens * VOCAB * HIDDEN
    b.say("loss_and_gradients", flops, "TFLOP/s", lambda: step(whole))
    b.say("loss_and_gradients_compiled", flops, "TFLOP/s", lambda: step(b.torch.compile(whole, dynamic=False)))


def block(b):
    """A Llama 3 8B block, forward and backward: 4 rows of a quarter of the tokens."""
    torch = b.torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
    config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=1, num_attention_heads=HEADS,
                         num_key_value_heads=KV_HEADS, vocab_size=VOCAB, max_position_embeddings=8192)
    config._attn_implementation = "sdpa"
    layer = LlamaDecoderLayer(config, 0).to("cuda", torch.bfloat16)
    length = b.tokens // 4
    x = b.rand(4, length, HIDDEN, grad=True)
    dy = b.rand(4, length, HIDDEN)
    at = torch.arange(length, device="cuda")[None]
    angles = LlamaRotaryEmbedding(config).to("cuda")(x, at)
    inputs = [x, *layer.parameters()]

    def step(f):
        def run():
            y = f(x, position_embeddings=angles, position_ids=at)
            y = y[0] if isinstance(y, tuple) else y
            torch.autograd.grad(y, inputs, dy)
        return run

    weights = HIDDEN * QKV + HEADS * DIM * HIDDEN + 3 * HIDDEN * INNER
    flops = 6.0 * b.tokens * weights + 3 * 4.0 * DIM * 4 * HEADS * length * length / 2.0
    b.say("block", flops, "TFLOP/s", lambda: step(layer))
    b.say("block_compiled", flops, "TFLOP/s", lambda: step(torch.compile(layer, dynamic=False)))


def lines_of(lines):
    """The figures of `name value unit` lines."""
    found = {}
    for line in lines:
        words = line.split()
        if len(words) == 3 and not line.startswith("#"):
            found[words[0]] = float(words[1])
    return found


def table(figures, ours):
    print(f"\n{'name':28} {'ours':>10} {'torch':>10} {'ratio':>7} {'compiled':>10} {'ratio':>7}")
    for name in ours:
        eager, made = figures.get(name, math.nan), figures.get(name + "_compiled", math.nan)
        if eager == eager or made == made:
            print(f"{name:28} {ours[name]:10.1f} {eager:10.1f} {ours[name] / eager:7.3f} {made:10.1f} {ours[name] / made:7.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only")
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--ours")
    p.add_argument("--library")
    a = p.parse_args()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"torch_ops.py: there is no torch here: {error}")
    if not torch.cuda.is_available():
        sys.exit("torch_ops.py: torch finds no card")
    b = Bench(a)
    print(f"# torch {torch.__version__}, {torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}, {b.tokens} tokens")
    rows, length = (1, 8192) if a.quick else (2, 16384)
    middle, large = "attention_4k,attention_grad_4k", f"attention_{length // 1024}k,attention_grad_{length // 1024}k"
    parts = ((memory_bound, "norm_rms,norm_layer,swiglu,gelu,rope,add,adamw"), (sums, "norm_qk,embed,bias_grad"), (products, "linear_"),
             (lambda b: attention(b, rows, 4096, DIM), ""), (lambda b: attention(b, rows, 4096, 64), middle),
             (lambda b: attention(b, 1, length, DIM), ""), (lambda b: attention(b, 1, length, 64), large),
             (loss, "loss_"), (block, "squares,sum_ranks,expand,dropout,magnitude,columns"))
    for part, words in parts:
        try:
            part(b)
        except Exception as error:
            print(f"# {getattr(part, '__name__', 'attention')}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        if words:
            b.ours(words)
    if a.ours:
        with open(a.ours, encoding="utf-8") as file:
            b.mine.update(lines_of(file))
    if b.mine:
        table(b.figures, b.mine)


main()
