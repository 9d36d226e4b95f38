"""shares.py: processes of a torch.distributed group share the states of tide.AdamW (ZeRO stage 1). A process
updates its share of the weights and sends it to the others by the group's backend; numbers and objects go over
gloo."""

import errno
import json
import pathlib
import traceback
from ctypes import addressof, byref, c_double, c_uint64

import torch
import torch.distributed as dist

from . import library
from .library import check, lib


class Shares:
    def __init__(self, group):
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.ranks = dist.get_process_group_ranks(group)
        # Sums are computed on a thread of the library, so they need a group of their own. NCCL has no sums on the CPU.
        self._sums = dist.new_group(self.ranks, backend="gloo", use_local_synchronization=True)
        self._sum = library.SUM(self._add_up)
        self._spans = None  # for each process a list with (first element, number of elements) of each parameter

    def fill(self, options):
        options.world, options.rank = self.world, self.rank
        options.sum = library.address(self._sum)

    def _add_up(self, _user, values, count):
        try:
            array = (c_double * count).from_address(addressof(values.contents))
            dist.all_reduce(torch.frombuffer(array, dtype=torch.float64), group=self._sums)
        except Exception:  # exceptions must not pass through the library
            traceback.print_exc()
            return -errno.EIO
        return 0

    def begin(self, handle, weights):
        """Lists which elements of the weights each process updates."""
        own = []
        for index in range(len(weights)):
            first, count = c_uint64(), c_uint64()
            check(lib.tide_optim_share(handle, index, byref(first), byref(count)))
            own.append((first.value, count.value))
        self._spans = [None] * self.world
        dist.all_gather_object(self._spans, own, group=self._sums)

    def gather(self, weights, indices):
        """Sends each process's share of these weights to all, unseen by autograd. On a GPU, the transfer is
        ordered with the library's copies and later work on torch's current stream."""
        sent = []
        for index in indices:
            flat = weights[index].data.view(-1)
            for rank, spans in zip(self.ranks, self._spans):
                first, count = spans[index]
                if count > 0:
                    part = flat[first:first + count].view(torch.uint8)
                    sent.append(dist.broadcast(part, src=rank, group=self.group, async_op=True))
        for one in sent:
            one.wait()

    def check_same(self, step):
        """Raises an error unless all processes have loaded the same step."""
        steps = [None] * self.world
        dist.all_gather_object(steps, step, group=self._sums)
        if len(set(steps)) > 1:
            raise RuntimeError(f"the processes have loaded checkpoints of different steps: {steps}")

    def directory(self, directory):
        """Returns the directory where this process saves."""
        return pathlib.Path(directory) / f"rank-{self.rank}"


def _processes(checkpoint):
    """Returns the number of processes that saved."""
    return int(json.loads((checkpoint / "manifest.json").read_text())["parameters"]["ranks"])


def paths(path):
    """Returns the checkpoints, or their directories, of all processes that saved to or below `path`."""
    path = pathlib.Path(path)
    if (path / "manifest.json").exists():
        count = _processes(path) if path.parent.name.startswith("rank-") else 1
        return [path.parent.parent / f"rank-{r}" / path.name for r in range(count)] if count > 1 else [path]
    saved = sorted((path / "rank-0").glob("checkpoint-*"), key=lambda one: int(one.name.split("-")[1]))
    return [path / f"rank-{r}" for r in range(_processes(saved[-1]))] if saved else [path]
