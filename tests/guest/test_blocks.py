#!/usr/bin/env python3
"""test_blocks.py: tests tide.Blocks, and the structs of the headers."""

import gc
import os
import pathlib
import subprocess
import sys

import guest
from guest import refused, torch

if torch is not None:
    import numpy
    import tide
    from tide import library


def round_trip(folder):
    """Tensors that do not fit into memory are returned unchanged."""
    with tide.Blocks("4MiB", store=[(folder, "64MiB")]) as blocks:
        put = {f"layer {i}": torch.randn(512, 512) for i in range(16)}
        put["bf16"] = torch.randn(3, 5).bfloat16()
        put["turned"] = torch.randn(4, 6).t()
        for name, tensor in put.items():
            blocks.put(name, tensor)
        assert blocks.stats()["evictions"] > 0
        blocks.prefetch("layer 3")
        out = torch.empty(512, 512)
        for name, tensor in put.items():
            assert torch.equal(blocks.get(name), tensor) and blocks.get(name).dtype == tensor.dtype
        assert blocks.get("layer 5", out) is out and torch.equal(out, put["layer 5"])
        blocks.iteration()
        array = numpy.arange(12, dtype=numpy.int64).reshape(3, 4)
        blocks.put("array", array)
        found = blocks.get("array")
        assert isinstance(found, numpy.ndarray) and (found == array).all()
        refused(ValueError, "needs a contiguous", lambda: blocks.get("layer 5", torch.empty(5)))
    refused(RuntimeError, "was closed", lambda: blocks.get("bf16"))


def conjugated(folder):
    """Tensors that torch stores conjugated or negated keep their values."""
    complex64 = torch.randn(200, 100, dtype=torch.complex64)
    with tide.Blocks("8MiB", store=[(folder, "64MiB")]) as blocks:
        for value in (complex64.conj(), complex64.conj().t(), complex64.conj()[:1, :1].imag):
            blocks.put("a", value)
            assert torch.equal(blocks.get("a"), value)
        refused(ValueError, "needs a contiguous", lambda: blocks.get("a", complex64.conj()[:1, :1].imag))
        weights = torch.randn(100, 200, dtype=torch.complex64, requires_grad=True)

        def gradient():
            return torch.autograd.grad((complex64.conj() @ weights.conj()).abs().sum(), [weights])[0]

        expected = gradient()
        with blocks.saved_tensors(min_bytes=0):
            assert torch.equal(gradient(), expected)


def pins(_):
    """A write to a pinned view is a write to the store."""
    with tide.Blocks("16MiB") as blocks:
        blocks.put("a", torch.zeros(1000))
        view = blocks.get("a", pin=True)
        view += 7
        refused(tide.Error, "a", lambda: blocks.drop("a"))
        blocks.release("a", changed=True)
        assert torch.equal(blocks.get("a"), torch.full((1000,), 7.0))
        assert "a" in blocks
        blocks.drop("a")
        assert "a" not in blocks
        refused(KeyError, "a", lambda: blocks.get("a"))
        refused(tide.Error, "", lambda: blocks.release("a"))
        refused(ValueError, "no elements", lambda: blocks.put("b", torch.empty(0)))
        refused(NotImplementedError, "meta", lambda: blocks.put("b", torch.empty(3, device="meta")))


def activations(folder):
    """Storing activations does not change gradients. The graph drops its blocks."""
    model = torch.nn.Sequential(*(layer for _ in range(12)
                                  for layer in (torch.nn.Linear(256, 256), torch.nn.Tanh())))
    x = torch.randn(1024, 256)
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    blocks = tide.Blocks("4MiB", store=[(folder, "128MiB")])
    for _ in range(2):
        with blocks.saved_tensors(keep=model.parameters()):
            loss = model(x).sum()
        assert len(blocks._living) == 24, len(blocks._living)
        for again in (True, False):
            found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=again)
            assert all(torch.equal(a, b) for a, b in zip(found, expected))
        del loss, found
        gc.collect()
        assert not blocks._living
    scale = torch.ones(1024, 128, requires_grad=True)
    for view in (x[:, ::2], x[:, :128], x[:, :128].t().contiguous().t(), x[:1, :128].expand(1024, 128)):
        with blocks.saved_tensors():
            product = (view * scale).sum()
        assert torch.equal(torch.autograd.grad(product, [scale])[0], view)
    stats = blocks.stats()
    assert stats["written_bytes"] > 0 and stats["read_bytes"] > 0
    blocks.close()


def layout(_):
    """The package's structs and enumerators are those of the headers."""
    program = os.environ["TIDE_TEST_LAYOUT"]
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = {name: (int(value), int(size)) for name, value, size in map(str.split, lines)}
    structs = {"tide_store_path": library.StorePath, "tide_optim_group": library.OptimGroup,
               "tide_optim_parameter": library.OptimParameter, "tide_optim_options": library.OptimOptions,
               "tide_optim_result": library.OptimResult, "tide_optim_info": library.OptimInfo,
               "tide_optim_arrays": library.OptimArrays,
               "tide_memory": library.Memory, "tide_blocks_options": library.BlocksOptions,
               "tide_block": library.Block, "tide_blocks_stats": library.BlocksStats}
    for name, struct in structs.items():
        fields = [row.split(".")[1] for row in rows if row.startswith(name + ".")]
        assert fields == [field[0] for field in struct._fields_], (name, fields)
        for field in fields:
            mirrored = getattr(struct, field)
            assert (mirrored.offset, mirrored.size) == rows[f"{name}.{field}"], (name, field)
    values = {"TIDE_BF16": library.BF16, "TIDE_FP16": library.FP16, "TIDE_FP32": library.FP32}
    values.update({"TIDE_MOMENTS_" + name.upper(): value for name, value in library.MOMENTS.items()})
    values.update({"TIDE_" + name.upper(): value for name, value in library.PLACES.items()})
    for name, value in values.items():
        assert rows[name][0] == value, name


def sizes(_):
    """Sizes are parsed as in the tide command."""
    for text, value in (("4096", 4096), ("512K", 512 << 10), ("1.5M", 3 << 19), ("24GiB", 24 << 30),
                        ("24GB", 24 * 10**9), (None, 0), (7, 7)):
        assert library.size(text) == value, text
    for text in ("", "x", "1 cat", "-1", -1):
        refused(ValueError, "invalid size", lambda: library.size(text))


def stores(_):
    """A tuple is a store with its size; a list has several stores."""
    for store, expected in ((None, []), ("/a", [("/a", 0)]), (("/a", "1K"), [("/a", 1024)]),
                            (pathlib.Path("/a"), [("/a", 0)]), (["/a", ("/b", 7)], [("/a", 0), ("/b", 7)])):
        paths = library.store_paths(store)
        assert [(os.fsdecode(one.directory), one.bytes) for one in paths] == expected, store


sys.exit(guest.main([round_trip, conjugated, pins, activations, layout, sizes, stores]))
