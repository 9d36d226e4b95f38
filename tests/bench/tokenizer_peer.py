"""tokenizer_peer.py TOKENIZER.json: times the `tokenizers` package for bench_tokenizer. Answers a line FILE (documents, each followed by a
NUL) with `batch SECONDS TOKENS`, and `load` with `load SECONDS`. RAYON_NUM_THREADS sets the number of threads."""
import sys
import time

from tokenizers import Tokenizer

path = sys.argv[1]
tokenizer = Tokenizer.from_file(path)
kept = {}
print("ready", flush=True)
for line in sys.stdin:
    name = line.strip()
    if name == "load":
        begin = time.perf_counter()
        Tokenizer.from_file(path)
        print("load %.6f" % (time.perf_counter() - begin), flush=True)
        continue
    if name not in kept:
        with open(name, "rb") as f:
            kept[name] = f.read().decode().split("\0")[:-1]
    begin = time.perf_counter()
    encoded = tokenizer.encode_batch(kept[name])
    seconds = time.perf_counter() - begin
    print("batch %.6f %d" % (seconds, sum(len(e.ids) for e in encoded)), flush=True)
