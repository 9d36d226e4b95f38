"""aio_peer.py FILE FILE2 BYTES: measures DeepSpeed's async_io for bench_aio, which writes `read`, `write` or `mixed` (reads FILE and
writes FILE2) per line, and reads `figure BYTES_PER_S CPU_MS_PER_GIB`. Uses the best of a few settings."""
import resource
import sys
import time

import torch
from deepspeed.ops.op_builder import AsyncIOBuilder

file, file2, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = sys.stdout
aio = AsyncIOBuilder().load(verbose=False)
SETTINGS = ((1 << 20, 32, 1), (1 << 20, 32, 2), (8 << 20, 16, 1), (8 << 20, 32, 2))
first = aio.aio_handle(1 << 20, 32, False, True, 1)
a, b = (first.new_cpu_locked_tensor(size, torch.empty(0, dtype=torch.uint8)) for _ in range(2))
a.fill_(7)
b.fill_(9)


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(pattern, handles):
    reader, writer = handles
    begin_cpu, begin = cpu(), time.perf_counter()
    if pattern != "write":
        reader.async_pread(a, file, 0)
    if pattern != "read":
        writer.async_pwrite(b, file2 if pattern == "mixed" else file, 0)
    if pattern != "write":
        reader.wait()
    if pattern != "read":
        writer.wait()
    seconds = time.perf_counter() - begin
    moved = size * (2 if pattern == "mixed" else 1)
    return moved / seconds, (cpu() - begin_cpu) * 1e3 * (1 << 30) / moved


handles = {s: [aio.aio_handle(s[0], s[1], False, True, s[2]) for _ in range(2)] for s in SETTINGS}
best = {}
for line in sys.stdin:
    pattern = line.strip()
    if pattern not in best:
        tried = {s: sorted(run(pattern, handles[s])[0] for _ in range(3))[1] for s in SETTINGS}
        best[pattern] = max(tried, key=tried.get)
        block, depth, threads = best[pattern]
        print(f"note DeepSpeed's best setting to {pattern}: block {block >> 20} MiB, depth {depth}, {threads} threads", file=out)
    print("figure %.0f %.3f" % run(pattern, handles[best[pattern]]), file=out, flush=True)
