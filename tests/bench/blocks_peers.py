#!/usr/bin/env python3
"""blocks_peers.py: blocks of 64 MiB written and read by the block store and by others, in turns.
  TIDE_LIBRARY=build/offload/api/libtide.so python3 tests/bench/blocks_peers.py DIR --python PY [--gib N] [--rounds N] [--only NAMES]
PY has torch and, for DeepNVMe, deepspeed. Reads come from the drive, except those of torch_cached. The sides:
  tide          put_begin (`through`) and get_begin of the C API, three blocks in flight, registered memory, checksums
  tide_no_sums  tide without checksums
  guest         tide.Blocks of the PyTorch package: put and get of tensors, one by one, in 256 MiB of memory
  deepnvme      deepspeed.ops.aio handles, three blocks in flight in pinned buffers, a file per block, no checksums, the best of
                a few settings
  torch         torch.save and fsync; torch.load after the file has left the page cache
  torch_cached  torch.save and torch.load through the page cache
Prints `name value unit` lines: medians, and median ratios of tide to the other sides."""
import argparse
import ctypes
import os
import pathlib
import resource
import shutil
import statistics
import sys
import time

BLOCK = 64 << 20
WINDOW = 3
SETTINGS = [(1 << 20, 32, 1), (1 << 20, 32, 2), (8 << 20, 16, 1), (8 << 20, 32, 2)]  # block, depth, threads


class Tide:
    def __init__(self, directory, count, sums):
        from tide import library
        self.library, self.lib, self.names = library, library.lib, [b"%d" % i for i in range(count)]
        self.memory = ctypes.c_void_p()
        library.check(self.lib.tide_pinned_alloc(None, None, ctypes.c_uint64(WINDOW * BLOCK), ctypes.byref(self.memory)))
        self.lib.tide_pinned_memory.restype = ctypes.c_void_p
        base = self.lib.tide_pinned_memory(self.memory)
        ctypes.memset(base, 7, WINDOW * BLOCK)
        self.buffers = [base + i * BLOCK for i in range(WINDOW)]
        store = library.StorePath(directory=directory.encode(), bytes=(count + WINDOW) * BLOCK)
        memory = library.Memory(memory=base, bytes=WINDOW * BLOCK)
        options = library.BlocksOptions(host_bytes=4 << 20, stores=ctypes.pointer(store), store_count=1,
                                        memory=ctypes.pointer(memory), memory_count=1, no_checksums=int(not sums))
        self.handle = ctypes.c_void_p()
        library.check(self.lib.tide_blocks_create(None, ctypes.byref(options), ctypes.byref(self.handle)))

        class Io(library.Struct):
            _fields_ = [("struct_bytes", ctypes.c_size_t), ("background", ctypes.c_uint32), ("through", ctypes.c_uint32),
                        ("place", ctypes.c_uint64)]
        self.through = Io(through=1)

    def all(self, begin, io):
        tokens = []
        for i, name in enumerate(self.names):
            if i >= WINDOW:
                self.library.check(self.lib.tide_blocks_wait(self.handle, tokens[i - WINDOW], None))
            token = ctypes.c_uint64()
            self.library.check(begin(self.handle, name, ctypes.c_void_p(self.buffers[i % WINDOW]), ctypes.c_uint64(BLOCK), io,
                                     ctypes.byref(token)))
            tokens.append(token.value)
        for token in tokens[-WINDOW:]:
            self.library.check(self.lib.tide_blocks_wait(self.handle, token, None))

    def put(self):
        self.all(self.lib.tide_blocks_put_begin, ctypes.byref(self.through))

    def get(self):
        self.all(self.lib.tide_blocks_get_begin, None)

    def close(self):
        self.lib.tide_blocks_destroy(self.handle)
        self.lib.tide_pinned_free(self.memory)


class Guest:
    def __init__(self, directory, count, _sums=None):
        import tide
        import torch
        self.names = [str(i) for i in range(count)]
        self.blocks = tide.Blocks("256MiB", (directory, (count + WINDOW) * BLOCK))
        self.tensor = torch.full([BLOCK], 7, dtype=torch.uint8)

    def put(self):
        for name in self.names:
            self.blocks.put(name, self.tensor)

    def get(self):
        for name in self.names:
            self.blocks.get(name, out=self.tensor)

    def close(self):
        self.blocks.close()


class DeepNvme:
    def __init__(self, directory, count, _sums=None):
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder
        module = AsyncIOBuilder().load(verbose=False)
        self.handles = {s: module.aio_handle(s[0], s[1], False, True, s[2]) for s in SETTINGS}
        first = self.handles[SETTINGS[0]]
        self.buffers = [first.new_cpu_locked_tensor(BLOCK, torch.empty(0, dtype=torch.uint8)) for _ in range(WINDOW)]
        for buffer in self.buffers:
            buffer.fill_(7)
        self.files = [f"{directory}/{i}" for i in range(count)]
        self.best = {}
        self.all("put", SETTINGS[0])  # makes the files

    def all(self, what, setting):
        handle = self.handles[setting]
        move = handle.async_pwrite if what == "put" else handle.async_pread
        for i in range(0, len(self.files), WINDOW):
            for buffer, file in zip(self.buffers, self.files[i:i + WINDOW]):
                move(buffer, file, 0)
            handle.wait()

    def run(self, what):
        if what not in self.best:
            def seconds(setting):
                begin = time.perf_counter()
                self.all(what, setting)
                return time.perf_counter() - begin
            tried = {s: statistics.median(seconds(s) for _ in range(3)) for s in SETTINGS}
            self.best[what] = min(tried, key=tried.get)
            print("# DeepNVMe's best setting to %s: block %d MiB, depth %d, %d threads"
                  % (what, self.best[what][0] >> 20, *self.best[what][1:]))
        return self.all(what, self.best[what])

    def put(self):
        self.run("put")

    def get(self):
        self.run("get")

    def close(self):
        pass


class Torch:
    def __init__(self, directory, count, durable):
        import torch
        self.torch, self.durable = torch, durable
        self.files = [f"{directory}/{i}.pt" for i in range(count)]
        self.tensor = torch.full([BLOCK], 7, dtype=torch.uint8)

    def put(self):
        for name in self.files:
            with open(name, "wb") as file:
                self.torch.save(self.tensor, file)
                if self.durable:
                    file.flush()
                    os.fsync(file.fileno())

    def before_get(self):
        for name in self.files if self.durable else []:
            with open(name, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def get(self):
        for name in self.files:
            self.torch.load(name)

    def close(self):
        pass


SIDES = {"tide": (Tide, True), "tide_no_sums": (Tide, False), "guest": (Guest, None), "deepnvme": (DeepNvme, None),
         "torch": (Torch, True), "torch_cached": (Torch, False)}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(side, what, bytes_moved):
    if what == "get" and hasattr(side, "before_get"):
        side.before_get()
    begin_cpu, begin = cpu(), time.perf_counter()
    getattr(side, what)()
    return bytes_moved / (time.perf_counter() - begin), (cpu() - begin_cpu) * 1e3 * (1 << 30) / bytes_moved


def compare(a):
    count = max(int(a.gib * (1 << 30)) // BLOCK, WINDOW)
    sides, figures = {}, {}
    for name in a.only.split(","):
        kind, argument = SIDES[name]
        directory = f"{a.directory}/blocks_peers.{name}"
        os.makedirs(directory, mode=0o700)
        try:
            sides[name] = kind(directory, count, argument)
        except ImportError as error:
            print(f"# {name} is left out: {error}")
            continue
        sides[name].put()
        for what in "put", "get":  # tries settings, warms up
            measure(sides[name], what, 1)
    for i in range(a.rounds):
        order = list(sides) if i % 2 == 0 else list(sides)[::-1]
        for what in "put", "get":
            for name in order:
                os.sync()  # pages that other sides left dirty are not written in this side's time
                figures.setdefault((what, name), []).append(measure(sides[name], what, count * BLOCK))
    for (what, name), list_ in figures.items():
        print("%s_%s_bytes_per_s %.0f B/s" % (what, name, statistics.median(f[0] for f in list_)))
        print("%s_%s_cpu %.2f ms/GiB" % (what, name, statistics.median(f[1] for f in list_)))
    for (what, name), list_ in figures.items():
        if name != "tide" and "tide" in sides:
            print("%s_ratio_of_%s %.3f x" % (what, name, statistics.median(
                ours[0] / theirs[0] for ours, theirs in zip(figures[what, "tide"], list_))))
    for side in sides.values():
        side.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(SIDES))
    a = parser.parse_args()
    python = os.path.abspath(a.python)
    if python != sys.executable:
        os.execv(python, [python, *sys.argv])
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/guest/pytorch"))
    try:
        compare(a)
    finally:
        for name in SIDES:
            shutil.rmtree(f"{a.directory}/blocks_peers.{name}", ignore_errors=True)


main()
