"""blocks.py: named tensors and saved activations, in a budget of host memory and on drives."""

import collections
import contextlib
import itertools
import weakref
from ctypes import byref, c_char, c_uint64, c_void_p

import torch

from . import library
from .library import check, lib

_IN_FLIGHT = 8  # largest number of puts of saved tensors in progress
_AHEAD = 4      # saved tensors that are read before backward needs them


_DEVICES = ("cpu", "cuda")


def _tensor(value, what):
    """Returns a tensor that shares the memory of a tensor or a numpy array."""
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
    if tensor.device.type not in _DEVICES:
        raise NotImplementedError(f"{what} is on {tensor.device}: tide.Blocks supports tensors on the CPU and on CUDA "
                                  f"devices")
    return tensor.detach()


def _plain(tensor):
    """Returns the tensor, or a copy if torch conjugates or negates the memory when reading."""
    return tensor.resolve_conj().resolve_neg()


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


class Blocks:
    """Named tensors and numpy arrays, in host memory up to `host_memory`, then in `store`: a (path, size) pair or
    a list of them. The sizes are reserved at once. The contents end with the object."""

    def __init__(self, host_memory, store=None, *, io=None, checksums=True):
        stores = library.store_paths(store)
        options = library.BlocksOptions(
            host_bytes=library.size(host_memory), stores=stores, store_count=len(stores),
            io=library.text(io), no_checksums=int(not checksums))
        handle = c_void_p()
        check(lib.tide_blocks_create(None, byref(options), byref(handle)))
        self._handle = handle
        self._formats = {}  # name: (dtype, shape, whether it is a numpy array, device)
        self._saved = itertools.count()
        self._living = set()                # numbers of saved tensors
        self._writing = collections.deque()  # (token, saved tensor, its version)
        self._finalizer = weakref.finalize(self, _destroy, handle, self._writing)

    def _open(self):
        if self._handle is None:
            raise RuntimeError("this tide.Blocks was closed")
        return self._handle

    def _format(self, name):
        if name not in self._formats:
            raise KeyError(name)
        return self._formats[name]

    def put(self, name, value):
        """Stores a tensor or an array, or replaces it."""
        given = _tensor(value, name)
        if given.numel() == 0:
            raise ValueError(f"{name} has no elements")
        tensor = _plain(given.cpu()).contiguous()
        check(lib.tide_blocks_put(self._open(), name.encode(), tensor.data_ptr(), _bytes(tensor)))
        self._formats[name] = (tensor.dtype, tensor.shape, not isinstance(value, torch.Tensor), given.device)

    def get(self, name, out=None, *, pin=False):
        """Returns a tensor or array: `out`, or a new one on the device of the stored one. pin: returns a view of the
        store's memory, on the CPU, until release(name)."""
        dtype, shape, is_numpy, device = self._format(name)
        if pin:
            block = library.Block()
            check(lib.tide_blocks_get(self._open(), name.encode(), None, 0, byref(block)))
            memory = (c_char * block.bytes).from_address(block.data)
            tensor = torch.frombuffer(memory, dtype=dtype).view(shape)
            return tensor.numpy() if is_numpy else tensor
        result = out if out is not None else torch.empty(shape, dtype=dtype, device=device)
        tensor = _tensor(result, "out")
        if (tensor.dtype != dtype or tensor.shape != shape or not tensor.is_contiguous() or tensor.is_conj() or
                tensor.is_neg()):
            raise ValueError(f"out is {tensor.dtype} {tuple(tensor.shape)}; {name} needs a contiguous {dtype} "
                             f"{tuple(shape)}")
        host = tensor if tensor.device.type == "cpu" else torch.empty(shape, dtype=dtype)
        check(lib.tide_blocks_get(self._open(), name.encode(), host.data_ptr(), _bytes(host), None))
        if host is not tensor:
            tensor.copy_(host)
        return tensor.numpy() if is_numpy and out is None else result

    def release(self, name, changed=False):
        """Ends one pin. changed: the view was written to."""
        check(lib.tide_blocks_release(self._open(), name.encode(), int(changed)))

    def prefetch(self, name):
        """Starts reading a tensor into memory, if there is memory for it."""
        check(lib.tide_blocks_prefetch(self._open(), name.encode()))

    def drop(self, name):
        """Forgets a tensor."""
        self._format(name)
        check(lib.tide_blocks_drop(self._open(), name.encode()))
        del self._formats[name]

    def iteration(self):
        """Begins an iteration. Tensors are read ahead in the order of the previous iteration."""
        check(lib.tide_blocks_iteration(self._open()))

    def stats(self):
        stats = library.BlocksStats()
        check(lib.tide_blocks_stats(self._open(), byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_[1:]}

    def close(self):
        """Frees the memory and the files. Pinned views become invalid."""
        self._handle = None
        self._finalizer()

    def __contains__(self, name):
        return name in self._formats

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- activations ----

    @contextlib.contextmanager
    def saved_tensors(self, keep=(), min_bytes=64 << 10):
        """A context that stores the tensors that autograd saves, except small and sparse ones and those
        that share memory with a tensor of `keep`: pass model.parameters()."""
        kept = {tensor.untyped_storage().data_ptr() for tensor in keep}

        def pack(tensor):
            if (_bytes(tensor) < max(min_bytes, 1) or tensor.layout != torch.strided or
                    tensor.device.type not in _DEVICES or tensor.untyped_storage().data_ptr() in kept):
                return tensor
            return _Saved(self, tensor)

        def unpack(packed):
            return packed.read() if isinstance(packed, _Saved) else packed

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield self

    def _finish_writes(self, left):
        """Waits until at most `left` puts of saved tensors are in progress."""
        while len(self._writing) > left:
            token, tensor, version = self._writing.popleft()
            check(lib.tide_blocks_wait(self._open(), token, None))
            if tensor._version != version:
                raise RuntimeError("a tensor that autograd had saved was changed in place while it was stored")


class _Saved:
    """A tensor that autograd saved; its block lives as long as this object."""

    def __init__(self, blocks, tensor):
        tensor = _plain(tensor)
        like = torch.empty_like(tensor, device="meta")
        if like.stride() != tensor.stride():  # it has gaps or overlaps
            tensor = tensor.contiguous()
        self.blocks = blocks
        self.number = next(blocks._saved)
        self.name = b"saved.%d" % self.number
        self.layout, self.device = (tensor.shape, tensor.stride(), tensor.dtype), tensor.device
        tensor = tensor.detach().to("cpu")  # keeps the strides
        blocks._finish_writes(_IN_FLIGHT - 1)
        token = c_uint64()
        check(lib.tide_blocks_put_begin(blocks._open(), self.name, tensor.data_ptr(), _bytes(tensor), None,
                                        byref(token)))
        blocks._living.add(self.number)
        blocks._writing.append((token.value, tensor, tensor._version))

    def read(self):
        blocks = self.blocks
        blocks._finish_writes(0)
        for number in range(self.number - 1, self.number - 1 - _AHEAD, -1):
            if number in blocks._living:
                check(lib.tide_blocks_prefetch(blocks._open(), b"saved.%d" % number))
        shape, stride, dtype = self.layout
        tensor = torch.empty_strided(shape, stride, dtype=dtype)
        check(lib.tide_blocks_get(blocks._open(), self.name, tensor.data_ptr(), _bytes(tensor), None))
        return tensor.to(self.device)

    def __del__(self):
        if self.number in self.blocks._living and self.blocks._handle is not None:
            self.blocks._living.discard(self.number)
            lib.tide_blocks_drop(self.blocks._handle, self.name)


def _destroy(handle, writing):
    """Closes the store. The tensors of `writing` are referenced until then."""
    lib.tide_blocks_destroy(handle)
    writing.clear()
