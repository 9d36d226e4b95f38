"""library.py: loads libtide, mirrors the structs of its headers, and turns error codes into exceptions.

A newer library works, too: fields are added at the end of a struct, without padding."""

import ctypes
import ctypes.util
import os
import pathlib
import re
from ctypes import (CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64,
                    c_void_p, sizeof)

# Enumerators of tide/engine.h.
BF16, FP16, FP32 = range(3)
MOMENTS = {"fp32": 0, "bf16": 1, "8bit": 2}
PLACES = {"auto": 0, "host": 2, "store": 3}
OPTIM_ALL = 2**64 - 1  # tide/optimizer.h


class Error(OSError):
    """A failed call of libtide: `errno` and the library's message."""


class Struct(ctypes.Structure):
    """A struct of the library. Its constructor sets struct_bytes."""

    def __init__(self, **fields):
        super().__init__(struct_bytes=sizeof(self), **fields)


class StorePath(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("directory", c_char_p), ("bytes", c_uint64)]


class OptimGroup(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("lr", c_double), ("beta1", c_double),
                ("beta2", c_double), ("eps", c_double), ("decay", c_double),
                ("no_bias_correction", c_uint64)]


class OptimParameter(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("name", c_char_p), ("weights", c_void_p),
                ("elements", c_uint64), ("precision", c_uint32), ("gradients", c_uint32),
                ("group", c_uint64)]


SUM = CFUNCTYPE(c_int, c_void_p, POINTER(c_double), c_size_t)


class OptimOptions(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("parameters", POINTER(OptimParameter)),
                ("parameter_count", c_size_t), ("groups", POINTER(OptimGroup)),
                ("group_count", c_size_t), ("optimizer", c_uint32), ("moments", c_uint32),
                ("clip", c_double), ("check_overflow", c_uint32), ("accumulate", c_uint32),
                ("seed", c_uint64), ("host_bytes", c_uint64), ("stores", POINTER(StorePath)),
                ("store_count", c_size_t), ("io", c_char_p), ("cache", c_char_p),
                ("threads", c_uint32), ("states", c_uint32), ("world", c_uint32),
                ("rank", c_uint32), ("sum", c_void_p), ("user", c_void_p),
                ("device", c_char_p), ("check_gradients", c_uint64)]


class OptimResult(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("step", c_uint64), ("grad_norm", c_double),
                ("factor", c_double), ("skipped", c_uint64)]


class OptimArrays(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("elements", c_uint64), ("master", c_void_p),
                ("m", c_void_p), ("v", c_void_p)]


class OptimInfo(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("elements", c_uint64), ("host_bytes", c_uint64),
                ("resident_bytes", c_uint64), ("store_bytes", c_uint64), ("blocks", c_uint64)]


class Memory(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("memory", c_void_p), ("bytes", c_uint64)]


class BlocksOptions(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("host_bytes", c_uint64),
                ("stores", POINTER(StorePath)), ("store_count", c_size_t), ("io", c_char_p),
                ("depth", c_uint32), ("no_checksums", c_uint32), ("memory", POINTER(Memory)),
                ("memory_count", c_size_t), ("device", c_char_p), ("device_bytes", c_uint64)]


class Block(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("data", c_void_p), ("bytes", c_uint64)]


class BlocksStats(Struct):
    _fields_ = [("struct_bytes", c_size_t)] + [(name, c_uint64) for name in (
        "host_bytes", "host_used_bytes", "host_peak_bytes", "store_bytes", "store_used_bytes",
        "gets", "hits", "read_bytes", "written_bytes", "evictions", "prefetches",
        "order_changes", "device_bytes", "device_used_bytes")]


TOKEN = POINTER(c_uint64)
FUNCTIONS = {
    "tide_optim_create": [c_void_p, POINTER(OptimOptions), POINTER(c_void_p)],
    "tide_optim_submit": [c_void_p, c_uint64, c_void_p, c_int, TOKEN],
    "tide_optim_step": [c_void_p, TOKEN],
    "tide_optim_wait": [c_void_p, c_uint64],
    "tide_optim_poll": [c_void_p, c_uint64],
    "tide_optim_wait_parameter": [c_void_p, c_uint64],
    "tide_optim_last": [c_void_p, POINTER(OptimResult)],
    "tide_optim_set_group": [c_void_p, c_uint64, POINTER(OptimGroup)],
    "tide_optim_set_stream": [c_void_p, c_void_p],
    "tide_optim_weights_changed": [c_void_p, c_uint64],
    "tide_optim_get_states": [c_void_p, c_uint64, POINTER(OptimArrays), TOKEN],
    "tide_optim_set_states": [c_void_p, c_uint64, POINTER(OptimArrays), c_uint64],
    "tide_optim_save": [c_void_p, c_char_p, c_uint64],
    "tide_optim_load_shares": [c_void_p, POINTER(c_char_p), c_size_t, TOKEN],
    "tide_optim_share": [c_void_p, c_uint64, TOKEN, TOKEN],
    "tide_optim_describe": [c_void_p, POINTER(OptimInfo)],
    "tide_blocks_create": [c_void_p, POINTER(BlocksOptions), POINTER(c_void_p)],
    "tide_blocks_put": [c_void_p, c_char_p, c_void_p, c_uint64],
    "tide_blocks_put_begin": [c_void_p, c_char_p, c_void_p, c_uint64, c_void_p, TOKEN],
    "tide_blocks_get": [c_void_p, c_char_p, c_void_p, c_uint64, POINTER(Block)],
    "tide_blocks_release": [c_void_p, c_char_p, c_int],
    "tide_blocks_prefetch": [c_void_p, c_char_p],
    "tide_blocks_drop": [c_void_p, c_char_p],
    "tide_blocks_poll": [c_void_p, c_uint64, c_void_p],
    "tide_blocks_wait": [c_void_p, c_uint64, c_void_p],
    "tide_blocks_iteration": [c_void_p],
    "tide_blocks_stats": [c_void_p, POINTER(BlocksStats)],
}


def _open():
    given = os.environ.get("TIDE_LIBRARY")
    beside = pathlib.Path(__file__).with_name("libtide.so")
    path = given or (str(beside) if beside.exists() else ctypes.util.find_library("tide"))
    if path is None:
        raise ImportError(f"libtide.so was not found: set TIDE_LIBRARY to its path, put it into "
                          f"{beside.parent}, or install it on the system")
    lib = ctypes.CDLL(path)
    lib.tide_last_error.restype = c_char_p
    for name in ("tide_optim_destroy", "tide_blocks_destroy"):
        getattr(lib, name).argtypes = [c_void_p]
        getattr(lib, name).restype = None
    for name, arguments in FUNCTIONS.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = c_int
    return lib


try:
    lib = _open()
except AttributeError as error:
    raise ImportError(f"this libtide is older than the package: {error}") from None


def check(rc):
    """Returns a result, or raises Error if it is negative."""
    if rc < 0:
        raise Error(-rc, lib.tide_last_error().decode(errors="replace"))
    return rc


def size(value):
    """Returns the number of bytes in 4096, "512K", "1M", "24GiB"; "24GB" is decimal. None: 0."""
    if isinstance(value, int) and value < 0:
        raise ValueError(f"invalid size {value}: it is negative")
    if value is None or isinstance(value, int):
        return value or 0
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGTP])(i?B)?|B)?\s*", value, re.IGNORECASE)
    if found is None:
        raise ValueError(f'invalid size "{value}" (examples: 4096, "512K", "1M", "24GiB"; '
                         f'"24GB" is decimal)')
    number, unit, suffix = found.groups()
    base = 1000 if suffix and suffix.lower() == "b" else 1024
    power = " KMGTP".index(unit.upper()) if unit else 0
    return int(float(number) * base**power)


def store_paths(store):
    """Returns an array of StorePath from None, a path, a (path, size) pair, or a list of paths and pairs."""
    if store is None:
        store = []
    elif isinstance(store, (str, os.PathLike, tuple)):
        store = [store]
    paths = []
    for one in store:
        pair = one if isinstance(one, tuple) else (one, 0)
        if len(pair) != 2 or not isinstance(pair[0], (str, bytes, os.PathLike)):
            raise ValueError(f"invalid store {one!r} (expected a path, a (path, size) pair such as "
                             f'("/nvme", "10GiB"), or a list of them)')
        paths.append(StorePath(directory=os.fsencode(pair[0]), bytes=size(pair[1])))
    return (StorePath * len(paths))(*paths)


def text(value):
    """Returns a string for the library; None stays None."""
    return None if value is None else os.fsencode(value)


def texts(values):
    """Returns an array of strings for the library."""
    return (c_char_p * len(values))(*map(text, values))


def address(function):
    """Returns the address of a function that the library calls. Keep a reference to the function until the last call."""
    return ctypes.cast(function, c_void_p).value


def choice(what, value, choices):
    if value not in choices:
        raise ValueError(f'invalid {what} "{value}" (one of {", ".join(choices)})')
    return choices[value]
