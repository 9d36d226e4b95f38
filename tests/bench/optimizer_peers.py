#!/usr/bin/env python3
"""optimizer_peers.py: compares a step of tide.AdamW, DeepSpeedCPUAdam and torch's fused AdamW, with states in host memory.
  TIDE_LIBRARY=build/offload/api/libtide.so PYTHONPATH=tools/guest/pytorch PY tests/bench/optimizer_peers.py
      [--parameters 158|1100] [--rounds N] [--only torch,deepspeed,hooks] [--apart]
The optimizers get bf16 gradients of a Llama and produce bf16 weights. tide has a split master. For the other optimizers the program
copies gradients to fp32 and fp32 weights to bf16, as ZeRO-Offload does. The sides run in turns in one process; figures are medians.
With --apart, which --parameters 1100 implies, a side has a process of its own, and one process exists at a time, to save memory.
`--only hooks`: equal models of 300 linear layers run backward without hooks, with hooks that do nothing, and with those of tide.AdamW.
Figures are median ratios to the pass without hooks: of time, of processor time of the thread, and of processor time of the process.
Further passes meter the guest and its C call. `free` is the processor time to free a gradient without tide.
Prints `name value unit` lines."""
import argparse
import collections
import gc
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

def shapes(millions):
    hidden, inner, layers, vocabulary = {158: (1024, 2816, 12, 8192), 1100: (2048, 5632, 22, 32000)}[millions]
    layer = [(hidden,), (hidden, hidden), (hidden // 4, hidden), (hidden // 4, hidden), (hidden, hidden), (hidden,),
             (inner, hidden), (inner, hidden), (hidden, inner)]
    return [(vocabulary, hidden)] + layer * layers + [(hidden,), (vocabulary, hidden)]


RING = 1 << 28  # elements: much more than the processor's caches hold


def ring_views(all_shapes, ring):
    """Gradients that share a ring, to save memory; the ring is larger than the caches."""
    views, at = [], 0
    for shape in all_shapes:
        count = torch.Size(shape).numel()
        at = 0 if at + count > ring.numel() else at
        views.append(ring[at:at + count].view(shape))
        at += count
    return views


class Tide:
    def __init__(self, all_shapes, gradients):
        import tide
        self.p = [torch.nn.Parameter((torch.randn(s) * 0.02).bfloat16()) for s in all_shapes]
        self.gradients = gradients
        self.optimizer = tide.AdamW(self.p, lr=1e-4, weight_decay=0.01, states="host")

    def step(self):
        for p, g in zip(self.p, self.gradients):
            p.grad = g
        self.optimizer.step()

    def close(self):
        self.optimizer.close()


class Peer:
    def __init__(self, all_shapes, gradients, make):
        self.p = [torch.nn.Parameter(torch.randn(s) * 0.02) for s in all_shapes]
        self.w = [p.detach().bfloat16() for p in self.p]
        for p, grad in zip(self.p, ring_views(all_shapes, torch.zeros(RING))):
            p.grad = grad
        self.gradients = gradients
        self.optimizer = make(self.p)

    def step(self):
        torch._foreach_copy_([p.grad for p in self.p], self.gradients)
        self.optimizer.step()
        torch._foreach_copy_(self.w, [p.detach() for p in self.p])

    def close(self):
        pass


def torch_fused(p):
    return torch.optim.AdamW(p, lr=1e-4, weight_decay=0.01, fused=True)


def deepspeed(p):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam(p, lr=1e-4, weight_decay=0.01, adamw_mode=True)


PEERS = {"torch": torch_fused, "deepspeed": deepspeed}


class Residual(torch.nn.Module):
    def __init__(self, edge):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(edge, edge, bias=False, dtype=torch.bfloat16) for _ in range(300))

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.05 * layer(x)
        return x


class Meter:
    """Adds up the processor time of a thread in functions, nested calls once."""
    def __init__(self):
        self.seconds, self.calls, self.inside = 0.0, 0, False

    def around(self, function):
        def metered(*arguments):
            if self.inside:
                return function(*arguments)
            self.inside = True
            begin = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.thread_time() - begin
                self.calls += 1
                self.inside = False
        return metered


class Metered:
    """The library with a meter around one function."""
    def __init__(self, library, name):
        self.library, self.name, self.meter = library, name, Meter()
        self.function = self.meter.around(getattr(library, name))

    def __getattr__(self, name):
        return self.function if name == self.name else getattr(self.library, name)


def freeing(edge, rounds):
    """Microseconds of processor time to free a gradient, oldest first."""
    figures = []
    for _ in range(rounds + 1):
        held = collections.deque(torch.ones(edge, edge, dtype=torch.bfloat16) for _ in range(300))
        begin = time.thread_time()
        while held:
            held.popleft()
        figures.append((time.thread_time() - begin) / 300 * 1e6)
    return statistics.median(figures[1:])


def backward(model, x):
    """Seconds, and processor seconds of this thread and of the process, of a backward pass and of freeing its gradients."""
    clocks = time.perf_counter, time.thread_time, time.process_time
    loss = model(x).float().pow(2).mean()
    begins = [clock() for clock in clocks]
    loss.backward()
    model.zero_grad()
    return [clock() - begin for clock, begin in zip(clocks, begins)]


def hooks(edge, rounds):
    import tide
    x = torch.randn(edge // 2, edge).bfloat16()
    models = {name: Residual(edge) for name in ("bare", "empty", "backward")}
    for p in models["empty"].parameters():
        p.register_post_accumulate_grad_hook(lambda p: None)
    optimizer = tide.AdamW(models["backward"].parameters(), lr=1e-5, clip=1.0)
    rows = []
    for _ in range(rounds + 1):
        rows.append({name: backward(model, x) for name, model in models.items()})
        optimizer.step()  # waits for all updates, so that none runs beside the next pass
    for name in ("empty", "backward"):
        for at, clock in enumerate(("", "_processor", "_process")):
            ratio = statistics.median(row[name][at] / row["bare"][at] for row in rows[1:])
            print(f"hooks_{edge}_{name}{clock}_over_bare {ratio:.3f} x", flush=True)
    meter_hooks(edge, rounds, models["backward"], x, optimizer)
    optimizer.close()
    print(f"hook_{edge}_free {freeing(edge, rounds):.1f} us", flush=True)


def meter_hooks(edge, rounds, model, x, optimizer):
    """Separate passes, because meters take time. With clipping, step() submits the gradients."""
    import tide
    module, adamw, guest = tide.optimizer, tide.optimizer.AdamW, Meter()
    module.lib = Metered(module.lib, "tide_optim_submit")
    plain = {name: getattr(adamw, name) for name in ("_after_backward", "_submit_pending")}
    for name, function in plain.items():
        setattr(adamw, name, guest.around(function))
    for _ in range(rounds):
        backward(model, x)
        optimizer.step()
    submit = module.lib.meter
    print(f"hook_{edge}_over_submit {1e6 * (guest.seconds - submit.seconds) / submit.calls:.1f} us\n"
          f"hook_{edge}_submit {1e6 * submit.seconds / submit.calls:.1f} us", flush=True)
    module.lib = module.lib.library
    for name, function in plain.items():
        setattr(adamw, name, function)


def make_gradients(all_shapes):
    return ring_views(all_shapes, torch.empty(RING, dtype=torch.bfloat16).normal_(0, 1e-3))


def run_side(a):
    """Runs a side in this process."""
    all_shapes = shapes(a.parameters)
    gradients = make_gradients(all_shapes)
    side = Tide(all_shapes, gradients) if a.side == "tide" else Peer(all_shapes, gradients, PEERS[a.side])
    times = [timed(side) for _ in range(a.rounds + 1)][1:]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"times": times, "peak": peak}), flush=True)
    side.close()


def compare_apart(a, name):
    times, peaks = {"tide": [], name: []}, {"tide": 0.0, name: 0.0}
    for _ in range(2):
        for side in times:
            command = [sys.executable, __file__, "--parameters", str(a.parameters), "--rounds", str(a.rounds), "--side", side]
            result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
            times[side] += result["times"]
            peaks[side] = max(peaks[side], result["peak"])
    report(a, name, statistics.median(times["tide"]), statistics.median(times[name]))
    print(f"optimizer_{a.parameters}m_tide_peak {peaks['tide']:.2f} GB\noptimizer_{a.parameters}m_{name}_peak {peaks[name]:.2f} GB", flush=True)


def report(a, name, mine, its):
    print(f"optimizer_{a.parameters}m_tide {mine:.4f} s\noptimizer_{a.parameters}m_{name} {its:.4f} s\n"
          f"optimizer_{a.parameters}m_over_{name} {its / mine:.2f} x", flush=True)


def timed(side):
    begin = time.perf_counter()
    side.step()
    return time.perf_counter() - begin


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--parameters", type=int, choices=(158, 1100), default=158, help="in millions")
    a.add_argument("--rounds", type=int, default=9)
    a.add_argument("--only", default="torch,deepspeed,hooks")
    a.add_argument("--apart", action="store_true", help="each side in a process of its own")
    a.add_argument("--side", choices=["tide", *PEERS], help=argparse.SUPPRESS)
    a = a.parse_args()
    if a.side:
        run_side(a)
        return
    names = a.only.split(",")
    if "hooks" in names:
        names.remove("hooks")
        for edge in (64, 512):
            hooks(edge, a.rounds)
    if a.apart or a.parameters > 1000:
        for name in names:
            compare_apart(a, name)
        return
    all_shapes = shapes(a.parameters)
    gradients = [(torch.randn(s) * 1e-3).bfloat16() for s in all_shapes]
    for name in names:
        ours, theirs = Tide(all_shapes, gradients), Peer(all_shapes, gradients, PEERS[name])
        times = [[], []]
        for _ in range(a.rounds + 1):
            for side, list_ in zip((ours, theirs), times):
                list_.append(timed(side))
        report(a, name, *(statistics.median(t[1:]) for t in times))
        ours.close()
        del ours, theirs
        gc.collect()


if __name__ == "__main__":
    main()
