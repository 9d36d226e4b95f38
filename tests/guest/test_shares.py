#!/usr/bin/env python3
"""test_shares.py: processes of torch.distributed share the states of tide.AdamW, also on a simulated device."""

import os
import pathlib
import subprocess
import sys

import guest
from guest import refused, torch

if torch is not None:
    import tide

WORLD, STEPS, HALF = 2, 4, 2


def create(model, **settings):
    return tide.AdamW(model.parameters(), lr=1e-2, host_memory="64MiB", cache=guest.CACHE, threads=1, clip=0.5,
                      **settings)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(256, 600), torch.nn.GELU(), torch.nn.Linear(600, 8))


def loss_of(model, step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    x = torch.randn(16, 256, generator=generator)
    return (model(x) - x[:, :8]).pow(2).mean()


def train_alone(model, optimizer, first, end):
    for step in range(first, end):
        optimizer.zero_grad()
        for rank in range(WORLD):
            (loss_of(model, step, rank) / WORLD).backward()
        optimizer.step()


class Played:
    """Simulates a GPU in host memory, and records calls. Copied gradients are kept, because the library borrows
    them."""

    STREAM = 77

    def __init__(self, module):
        self.calls, self.kept, self.library = [], [], module.lib
        module._COPIED, module.lib = ("cpu",), self
        torch.cuda.synchronize = lambda device: self.calls.append("synchronize")
        torch.cuda.current_stream = lambda device: self
        torch.Tensor.record_stream = lambda tensor, stream: self.kept.append(tensor)
        self.broadcast, torch.distributed.broadcast = torch.distributed.broadcast, self.send
        self.cuda_stream = self.STREAM

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            if name in ("tide_optim_submit", "tide_optim_wait_parameter", "tide_optim_weights_changed"):
                self.calls.append(name.removeprefix("tide_optim_"))
            return function(*arguments)
        return call

    def tide_optim_set_stream(self, _handle, stream):
        assert stream == self.STREAM
        self.calls.append("stream")
        return 0

    def send(self, part, **arguments):
        self.calls.append("send")
        return self.broadcast(part, **arguments)

    def check_step(self, count):
        """Checks that a step takes gradients and sends weights on torch's stream."""
        calls = self.calls[:]
        del self.calls[:], self.kept[:]
        sent = calls.index("send")
        assert calls[:sent] == ["stream", "submit"] * count + ["stream"] * 2 + ["wait_parameter"], calls
        assert set(calls[sent:]) == {"send"}, calls


def on_a_device(rank, folder):
    """Repeats the first steps, and loads a checkpoint, on a simulated device."""
    played = Played(tide.optimizer)
    model = network()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = create(model, process_group=torch.distributed.group.WORLD)
    for step in range(HALF):
        optimizer.zero_grad()
        loss_of(ddp, step, rank).backward()
        del played.calls[:]
        optimizer.step()
        played.check_step(len(list(model.parameters())))
    check_result(folder / f"half {rank}", model, optimizer)
    optimizer.load(folder / "alone")
    assert played.calls[:3] == ["stream", "wait_parameter", "send"], played.calls
    optimizer.close()


def without_a_group(rank):
    """An optimizer that takes gradients before they are averaged is refused."""
    model = network()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = create(model)
    loss_of(ddp, 0, rank).backward()
    refused(RuntimeError, "overlap=False, or process_group", optimizer.step)
    optimizer.close()


def process(rank, folder):
    """Runs in a process of the group, after the checkpoint of a single process."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    model = network()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = create(model, process_group=torch.distributed.group.WORLD, store=[(folder / f"store {rank}", "64MiB")],
                       checkpoints=folder / "by state_dict")
    for step in range(HALF):
        optimizer.zero_grad()
        loss_of(ddp, step, rank).backward()
        optimizer.step()
    refused(NotImplementedError, "full_state_dict() is not supported with process_group", optimizer.full_state_dict)
    torch.save([model.state_dict(), optimizer.last()["grad_norm"]], folder / f"half {rank}")
    optimizer.save(folder / "shared")
    state = optimizer.state_dict()
    assert optimizer.load(folder / "alone") == 1
    optimizer.load_state_dict(state)
    for step in range(HALF, STEPS):
        optimizer.zero_grad()
        loss_of(ddp, step, rank).backward()
        optimizer.step()
    torch.save([model.state_dict(), optimizer.last()["grad_norm"]], folder / f"end {rank}")
    optimizer.close()
    on_a_device(rank, folder)
    without_a_group(rank)
    torch.distributed.destroy_process_group()


def check_result(path, model, optimizer):
    weights, norm = torch.load(path)
    for name, value in model.state_dict().items():
        assert torch.equal(weights[name], value), f"{path.name}: {name} differs"
    assert norm == optimizer.last()["grad_norm"]


def ddp(folder):
    """Two processes have the weights, norms and states of one."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise guest.Skipped("torch has no gloo")
    model = network()
    alone = create(model, accumulation_steps=WORLD)
    train_alone(model, alone, 0, 1)
    alone.save(folder / "alone")
    children = [subprocess.Popen([sys.executable, __file__, "process", str(rank), str(folder)],
                                 env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, stdout=sys.stderr)
                for rank in range(WORLD)]
    try:
        codes = [child.wait(timeout=200) for child in children]
    finally:
        for child in children:
            child.kill()
    assert codes == [0, 0], codes
    train_alone(model, alone, 1, HALF)
    for rank in range(WORLD):
        check_result(folder / f"half {rank}", model, alone)
    other = network()
    loaded = create(other, accumulation_steps=WORLD)
    assert loaded.load(folder / "shared") == HALF
    check_same(model, other)
    train_alone(model, alone, HALF, STEPS)
    train_alone(other, loaded, HALF, STEPS)
    check_same(model, other)
    for rank in range(WORLD):
        check_result(folder / f"end {rank}", model, alone)


def check_same(one, other):
    for p, q in zip(one.parameters(), other.parameters()):
        assert torch.equal(p, q)


if sys.argv[1:2] == ["process"]:
    process(int(sys.argv[2]), pathlib.Path(sys.argv[3]))
else:
    sys.exit(guest.main([ddp]))
