"""optimizer.py: AdamW as a torch.optim.Optimizer whose states belong to libtide.

Hooks take gradients from p.grad during backward; with overlap=False, step() takes them. Gradients
in host memory are passed to the library several at a time. The library uses their memory until the
update is done."""

import collections
import contextlib
import functools
import io
import os
import pathlib
import tempfile
import threading
import warnings
import weakref
from ctypes import byref, c_int, c_uint64, c_void_p

import torch
from torch.autograd.graph import increment_version

from . import library, shares, states
from .library import check, lib

_PRECISIONS = {torch.bfloat16: library.BF16, torch.float16: library.FP16, torch.float32: library.FP32}
_STRIDED = torch.strided
_COPIED = ("cuda",)  # devices whose gradients and weights the library copies
_LAST = c_int(1)
# Inside backward, gradients in host memory are submitted in groups of this many tensors or bytes, because a submit
# wakes threads that compete with backward for the processors.
_BATCH = 32
_BATCH_BYTES = 16 << 20
_living = weakref.WeakSet()


def _destroy(handle, hooks, weights, borrowed, _shares):
    """Destroys the optimizer. `weights`, `borrowed` and `_shares` are referenced until then."""
    for hook in hooks:
        hook.remove()
    lib.tide_optim_destroy(handle)
    weights.clear()
    borrowed.clear()


def _group(values):
    lr, beta1, beta2, eps, decay = values
    return library.OptimGroup(lr=lr, beta1=beta1, beta2=beta2, eps=eps, decay=decay)


def _values(group):
    beta1, beta2 = group["betas"]
    return tuple(float(x) for x in (group["lr"], beta1, beta2, group["eps"], group["weight_decay"]))


class AdamW(torch.optim.Optimizer):
    """Like torch.optim.AdamW. States are kept in host memory up to `host_memory`, then in files in `store`: a
    path, a (path, size) pair, or a list of them. The README lists the limits.

    clip: the largest norm of the gradients; 0: no clipping. accumulation_steps: backward passes whose gradients
    are added up in p.grad first. overlap False: gradients stay in p.grad until step(), as torch.amp.GradScaler
    needs. checkpoints: a directory where state_dict() saves states. process_group: processes that share the
    states (ZeRO stage 1); at step(), p.grad must be their average, as DistributedDataParallel makes it.
    check_gradients: raises an error if a gradient was written to or freed while the library used it (by
    hashes)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, *,
                 host_memory=None, store=None, clip=0.0, moments="fp32", threads=0, io=None,
                 cache=None, states="auto", accumulation_steps=1, check_overflow=False, overlap=True,
                 checkpoints=None, process_group=None, check_gradients=False):
        self._handle = None
        self._settings = None
        if accumulation_steps < 1:
            raise ValueError(f"accumulation_steps is {accumulation_steps}; it is at least 1")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self._lock = threading.Lock()
        self._token = c_uint64()
        self._token_at = byref(self._token)
        self._pending = collections.deque()  # (index, gradient, address, version) that are not submitted yet
        self._pending_bytes = 0
        # index: (gradient, address, version, token) of a gradient that the library uses, in the order of submits
        self._borrowed = collections.OrderedDict()
        self._closed = 0                  # how many borrowed gradients belong to closed steps; they come first
        self._open = False                # a gradient of the next step was submitted
        self._inside = clip == 0 and not check_overflow  # updates begin before the step is closed
        self._accumulation_steps = accumulation_steps
        self._accumulating = 0
        self._shares = None
        if process_group is not None:
            self._shares = shares.Shares(process_group)
        self._overlap = overlap and self._shares is None
        self._clips = clip > 0
        self._steps = 0
        self._checkpoints = checkpoints
        self._unsaved = False   # whether some states are in no checkpoint
        self._reference = None  # to the checkpoint that has the states
        self._modules = _Attached(self)
        settings = dict(
            clip=clip, moments=library.choice("moments", moments, library.MOMENTS),
            host_bytes=library.size(host_memory), io=library.text(io), cache=library.text(cache),
            threads=threads, states=library.choice("states", states, library.PLACES),
            check_overflow=int(check_overflow), check_gradients=int(check_gradients)), library.store_paths(store)
        self._begin_library(*settings)
        self._settings = settings
        _living.add(self)
        _watch_clipping()

    def _begin_library(self, options, stores):
        """Lists the parameters and creates the library's optimizer for them."""
        self._list_parameters()
        count = len(self._params)
        self._taken = [False] * count      # whether the gradient was taken in this step
        self._backwards = [0] * count      # backward passes since the last step
        self._versions = [p._version for p in self._params]
        self._waiting = [False] * count    # weights may still be updated
        self._sent = [_values(group) for group in self.param_groups]
        handle = self._create(library.OptimOptions(**options), stores)
        hooks = []
        self._finalizer = weakref.finalize(self, _destroy, handle, hooks, self._weights, self._borrowed,
                                           self._shares)
        self._handle = handle
        if self._shares is not None:
            self._shares.begin(handle, self._weights)
        this = weakref.ref(self)
        for index, p in enumerate(self._params):
            hooks.append(p.register_post_accumulate_grad_hook(functools.partial(_hook, this, index)))

    # ---- parameters ----

    def _name(self, group_index, index):
        names = self.param_groups[group_index].get("param_names")
        name = names[index] if names else ""
        return name if 0 < len(name.encode()) < 256 else f"parameter {index} of group {group_index}"

    def _check_parameter(self, p, name):
        if p.device.type != "cpu" and p.device.type not in _COPIED:
            raise NotImplementedError(f"{name} is on {p.device}: tide.AdamW supports tensors on the CPU and on CUDA "
                                      f"devices")
        if p.device != self.param_groups[0]["params"][0].device:
            raise ValueError(f"{name} is on {p.device}; the first parameter is on "
                             f"{self.param_groups[0]['params'][0].device}: tide.AdamW needs all on one device")
        if p.dtype not in _PRECISIONS:
            raise ValueError(f"{name} is {p.dtype}; tide.AdamW trains float32, bfloat16 and float16")
        if not p.is_contiguous():
            raise ValueError(f"{name} is not contiguous (shape {tuple(p.shape)}, strides {p.stride()}); "
                             f"tide.AdamW needs contiguous parameters")

    def _list_parameters(self):
        """Frozen and empty parameters have no states."""
        self._params, self._names, self._groups, self._frozen = [], [], [], []
        for g, group in enumerate(self.param_groups):
            for i, p in enumerate(group["params"]):
                name = self._name(g, i)
                self._check_parameter(p, name)
                if not p.requires_grad or p.numel() == 0:
                    self._frozen.append((p, name))
                    continue
                self._params.append(p)
                self._names.append(name)
                self._groups.append(g)
        if not self._params:
            raise ValueError("no parameter requires a gradient")
        device = self._params[0].device
        self._place = device
        self._device = device if device.type in _COPIED else None  # None: no copies
        self._index = {id(p): i for i, p in enumerate(self._params)}
        self._weights = [p.detach() for p in self._params]  # the memory that the library writes
        self._pointers = [weights.data_ptr() for weights in self._weights]
        self._dtypes = [weights.dtype for weights in self._weights]
        self._bytes = [weights.numel() * weights.element_size() for weights in self._weights]
        self._numbers = [c_uint64(i) for i in range(len(self._params))]  # arguments of tide_optim_submit

    def _create(self, options, stores):
        parameters = [library.OptimParameter(
            name=name.encode(), weights=weights.data_ptr(), elements=weights.numel(),
            precision=_PRECISIONS[weights.dtype], gradients=_PRECISIONS[weights.dtype], group=group)
            for name, weights, group in zip(self._names, self._weights, self._groups)]
        groups = [_group(values) for values in self._sent]
        options.parameters = (library.OptimParameter * len(parameters))(*parameters)
        options.parameter_count = len(parameters)
        options.groups = (library.OptimGroup * len(groups))(*groups)
        options.group_count = len(groups)
        options.stores = stores
        options.store_count = len(stores)
        if self._device is not None:
            options.device = str(self._device).encode()
            torch.cuda.synchronize(self._device)  # the library reads the weights
        if self._shares is not None:
            self._shares.fill(options)
        handle = c_void_p()
        check(lib.tide_optim_create(None, byref(options), byref(handle)))
        return handle

    def add_param_group(self, param_group):
        """Adds a group between steps. Meanwhile the states are in a file in the first store or, without a store, in
        memory."""
        if self._settings is None:
            super().add_param_group(param_group)
            return
        self._check_open()
        self._check_whole("add_param_group()")
        self._check_between("add_param_group()")
        self.synchronize()
        self._report_writes()
        super().add_param_group(param_group)
        try:
            for i, p in enumerate(self.param_groups[-1]["params"]):
                self._check_parameter(p, self._name(len(self.param_groups) - 1, i))
        except Exception:
            self.param_groups.pop()
            raise
        stores = self._settings[1]
        with tempfile.TemporaryFile(dir=os.fsdecode(stores[0].directory)) if stores else io.BytesIO() as spill:
            kept = self._spill(spill)
            try:
                self._restart(spill, kept)
            except Exception:
                self.param_groups.pop()
                self._restart(spill, kept)
                raise

    def _spill(self, file):
        """Writes all states; returns parameters and their numbers of steps, in order."""
        kept = []
        for index, p in enumerate(self._params):
            tensors, count = states.get(self._handle, index, p)
            kept.append((p, count))
            for tensor in tensors.values():
                file.write(memoryview(tensor.numpy()).cast("B"))
        return kept

    def _restart(self, file, kept):
        """Creates the library's optimizer again, for the current parameters, with the states that were written."""
        self._handle = None
        self._finalizer()
        self._begin_library(*self._settings)
        file.seek(0)
        for p, count in kept:
            tensors = {name: torch.empty(p.shape, dtype=torch.float32) for name in states.names(p)}
            for tensor in tensors.values():
                file.readinto(memoryview(tensor.numpy()).cast("B"))
            states.put(self._handle, self._index[id(p)], p, tensors, count)
        self._show_weights()
        self._steps = 0  # earlier checkpoints belong to another run
        self._unsaved, self._reference = any(count > 0 for _, count in kept), None
        self._modules.again()

    # ---- gradients ----

    def _begin(self):
        """Called before the first gradient of a step: reports the program's changes to the library."""
        params = self._params
        pointers, dtypes = [p.data_ptr() for p in params], [p.dtype for p in params]
        if pointers != self._pointers or dtypes != self._dtypes:
            moved = next(i for i in range(len(params))
                         if pointers[i] != self._pointers[i] or dtypes[i] != self._dtypes[i])
            raise RuntimeError(f"{self._names[moved]} has other memory than when tide.AdamW was created (model.to() or "
                               f"an assignment to .data); create the optimizer after that")
        values = [_values(group) for group in self.param_groups]
        for i, (old, new) in enumerate(zip(self._sent, values)):
            if old != new:
                check(lib.tide_optim_set_group(self._handle, i, byref(_group(new))))
        self._sent = values
        self._report_writes()

    def _written(self):
        """Returns the indices of parameters whose weights the program wrote since the last report."""
        versions = [p._version for p in self._params]
        if versions == self._versions:
            return []
        return [i for i, version in enumerate(versions) if version != self._versions[i]]

    def _report_writes(self):
        """Called between steps, before states are used: copies weights that the program wrote to the masters."""
        if not self._open:
            for index in self._written():
                if self._waiting[index]:
                    self._refuse_write(index)
                self.weights_changed(self._params[index])

    def _use_stream(self):
        """Makes the library's next copies wait for the work on torch's current stream."""
        if self._device is not None:
            check(lib.tide_optim_set_stream(self._handle, torch.cuda.current_stream(self._device).cuda_stream))

    def _show_weights(self):
        """Brings weights that the library changed between steps to the device."""
        if self._device is not None:
            self.synchronize()

    def _take(self, index):
        """Takes p.grad, and submits it or keeps it for the next call."""
        p = self._params[index]
        grad = p.grad
        if self._taken[index]:
            several = torch.distributed.is_available() and torch.distributed.is_initialized()
            raise RuntimeError(
                f"{self._names[index]} has a second gradient in one step, after the first one was handed over: "
                f"give tide.AdamW accumulation_steps=N, or run all but the last backward in "
                f"`with optimizer.accumulate():`"
                + ("; with DistributedDataParallel, which averages gradients after they were handed over, give "
                   "overlap=False, or process_group to share the states" if several else ""))
        with self._lock:
            first = not self._open
            if first:
                self._begin()
            if (grad.layout is not _STRIDED or grad.dtype is not self._dtypes[index]
                    or grad.device != self._place):
                raise ValueError(f"the gradient of {self._names[index]} is {grad.dtype} ({grad.layout}, "
                                 f"{grad.device}); tide.AdamW needs a dense one of {p.dtype} on {p.device}")
            if grad.is_neg():  # torch negates it when it reads it
                grad = grad.resolve_neg()
            if not grad.is_contiguous():
                grad = grad.contiguous()
            pending = self._pending
            pending.append((index, grad, grad.data_ptr(), grad._version))
            self._pending_bytes = size = self._pending_bytes + self._bytes[index]
            # Submitted at once: the first gradient, so that the library refuses errors early, and gradients on a
            # GPU, because later calls may be on another stream. Other gradients whose updates need the norm wait
            # for step(): summing their squares earlier takes processors from backward.
            full = self._inside and (size >= _BATCH_BYTES or len(pending) >= _BATCH)
            if first or full or self._device is not None:
                try:
                    self._submit_pending()
                except (library.Error, RuntimeError):
                    if pending:
                        pending.pop()  # p.grad still has it
                    raise
                self._open = True
            self._taken[index] = True
        p.grad = None

    def _submit_pending(self):
        """Submits the pending gradients. Called with the lock."""
        pending, token = self._pending, self._token
        # Gradients of this step are needed until it is closed, unless updates run inside backward.
        if self._borrowed and (self._closed or self._inside):
            self._end_reached()
        self._use_stream()
        if self._inside:
            self._note_updates([index for index, *_ in pending])
        handle, numbers, submit = self._handle, self._numbers, lib.tide_optim_submit
        self._pending_bytes = 0
        while pending:
            index, grad, address, version = pending[0]
            self._check_gradient(index, grad, address, version)
            if index in self._borrowed:  # of an earlier step; the submit would wait for its update, too
                check(lib.tide_optim_wait_parameter(handle, index))
                self._end_borrow(index)
            pending.popleft()
            check(submit(handle, numbers[index], address, _LAST, self._token_at))
            if self._device is None:
                self._borrowed[index] = grad, address, version, token.value
            else:  # it is copied on the stream
                grad.record_stream(torch.cuda.current_stream(self._device))

    def _end_reached(self):
        """Ends borrows whose updates are done; parameters that share a block share a token."""
        borrowed, handle, poll = self._borrowed, self._handle, lib.tide_optim_poll
        reached = 0
        while borrowed:
            index = next(iter(borrowed))
            token = borrowed[index][3]
            if token != reached and check(poll(handle, token)) != 1:
                break
            reached = token
            self._end_borrow(index)

    def _check_gradient(self, index, grad, address, version):
        """Raises an error if the program wrote to a gradient after it was taken, or moved or freed its memory."""
        if grad._version != version or grad.data_ptr() != address:
            raise RuntimeError(f"the gradient of {self._names[index]} was written to or freed while the library "
                               f"used it: before you reuse a gradient's memory, call synchronize(), or let the "
                               f"forward of an attached module wait for the update")

    def _end_borrow(self, index):
        """Drops a gradient, and checks it."""
        borrowed = self._borrowed.pop(index, None)
        if borrowed is not None:
            self._closed = max(self._closed - 1, 0)
            self._check_gradient(index, *borrowed[:3])

    def _note_updates(self, indices):
        """Makes autograd refuse weights that it saved before these updates."""
        params, versions = self._params, self._versions
        for index in indices:
            p = params[index]
            increment_version(p)
            versions[index] = p._version

    def _after_backward(self, index):
        self._backwards[index] += 1
        if self._overlap and not self._accumulating and self._backwards[index] >= self._accumulation_steps:
            self._take(index)

    @contextlib.contextmanager
    def accumulate(self):
        """A context in which backward passes add up gradients in p.grad."""
        self._accumulating += 1
        try:
            yield
        finally:
            self._accumulating -= 1

    def zero_grad(self, set_to_none=True):
        if self._open:
            raise RuntimeError("zero_grad() between backward and step(): the gradients were handed over and "
                               "cannot be dropped; call it before backward or after step()")
        self._backwards = [0] * len(self._params)
        super().zero_grad(set_to_none)

    # ---- steps ----

    @torch.no_grad()
    def step(self, closure=None):
        """Closes the step and, for parameters outside of attached modules, waits for the weights."""
        self._check_open()
        if getattr(self, "grad_scale", None) is not None:
            raise RuntimeError("torch.amp.GradScaler needs tide.AdamW(overlap=False): gradients were handed over "
                               "before it could unscale them")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, p in enumerate(self._params):
            if p.grad is not None:
                self._take(index)
        for p, name in self._frozen:
            if p.grad is not None and p.numel() > 0:
                raise RuntimeError(f"{name} did not require a gradient when tide.AdamW was created and has no "
                                   f"states; create the optimizer after unfreezing it")
        self._backwards = [0] * len(self._params)
        if not self._open:
            return loss
        if [_values(group) for group in self.param_groups] != self._sent:
            raise RuntimeError("param_groups changed between backward and step(), when updates may have begun: "
                               "change them before backward or after step()")
        with self._lock:
            self._submit_pending()
            check(lib.tide_optim_step(self._handle, self._token_at))
            self._open, self._closed = False, len(self._borrowed)
        self._steps += 1
        self._unsaved = True
        taken, self._taken = self._taken, [False] * len(self._params)
        if not self._inside:
            self._note_updates([i for i, was in enumerate(taken) if was])
        self._waiting = taken
        if self._shares is not None:
            self.synchronize()
            self._shares.gather(self._weights, [index for index, was in enumerate(taken) if was])
            return loss
        self._modules.begin_forward()
        return loss

    def _check_whole(self, what):
        if self._shares is not None:
            raise NotImplementedError(f"{what} is not supported with process_group, because each process has a share "
                                      f"of the states only; use save() and load()")

    def _check_between(self, what):
        if self._open:
            raise RuntimeError(f"{what} between backward and step(): call it before backward or after step()")

    def _check_open(self):
        if self._handle is None:
            raise RuntimeError("this tide.AdamW was closed")

    def synchronize(self):
        """Waits until all weights are those of the last closed step."""
        self._check_open()
        self._use_stream()
        check(lib.tide_optim_wait_parameter(self._handle, library.OPTIM_ALL))
        waited, self._waiting = self._waiting, [False] * len(self._params)
        if not self._open:
            while self._borrowed:
                self._end_borrow(next(iter(self._borrowed)))
            for index in self._written():
                if waited[index]:
                    self._refuse_write(index)

    def _wait(self, index):
        if self._waiting[index]:
            self._use_stream()
            check(lib.tide_optim_wait_parameter(self._handle, index))
            self._waiting[index] = False
            if not self._open:
                self._end_borrow(index)
                if self._params[index]._version != self._versions[index]:
                    self._refuse_write(index)

    def _refuse_write(self, index):
        raise RuntimeError(f"the weights of {self._names[index]} were written to after step(), while they might still be "
                           f"updated: call synchronize() first")

    def attach(self, module):
        """Lets step() return before the weights of `module` are updated: its modules wait before their forward.
        Call synchronize() before weights are read or written outside of a forward."""
        self._modules.add(module)

    def weights_changed(self, parameter):
        """Reports that the program wrote weights in a way that torch cannot detect (p.data, numpy). Call it between
        steps."""
        self._check_open()
        index = self._index[id(parameter)]
        self._use_stream()
        check(lib.tide_optim_weights_changed(self._handle, index))
        self._unsaved = True
        self._versions[index] = parameter._version

    def last(self):
        """Returns the number of the last step, the norm of its gradients, the clipping factor, and whether the step was
        skipped. Waits for the norm."""
        self._check_open()
        result = library.OptimResult()
        check(lib.tide_optim_last(self._handle, byref(result)))
        return {"step": result.step, "grad_norm": result.grad_norm, "factor": result.factor,
                "skipped": bool(result.skipped)}

    def describe(self):
        """Returns the bytes used in memory and on drives."""
        self._check_open()
        info = library.OptimInfo()
        check(lib.tide_optim_describe(self._handle, byref(info)))
        return {name: getattr(info, name) for name, _ in info._fields_[1:]}

    def close(self):
        """Waits for updates and frees the memory and the files. Also done when the object is deleted."""
        self._handle = None
        self._pending.clear()
        self._modules.remove()
        self._finalizer()

    # ---- checkpoints ----

    def save(self, directory, keep=0):
        """Writes weights and states to directory/checkpoint-N after N steps, verifies them, and keeps the `keep`
        newest checkpoints (0: all). Call it between steps. With process_group all processes call it; process R
        writes to directory/rank-R."""
        self._check_open()
        self._report_writes()
        if self._shares is not None:
            directory = self._shares.directory(directory)
            directory.mkdir(parents=True, exist_ok=True)
        check(lib.tide_optim_save(self._handle, library.text(directory), keep))
        self._refer_to(pathlib.Path(directory) / f"checkpoint-{self._steps}")

    def _refer_to(self, checkpoint):
        self._unsaved, self._reference = False, states.reference(checkpoint)

    def load(self, path):
        """Reads weights and states, but not param_groups, from a checkpoint or from the newest valid one in a
        directory. Parameters and moments must match. Returns the number of steps. With process_group all
        processes call it; another number of processes may have saved."""
        self._check_open()
        self._check_between("load()")
        step = c_uint64()
        saved = shares.paths(path)
        check(lib.tide_optim_load_shares(self._handle, library.texts(saved), len(saved), byref(step)))
        self._show_weights()
        if self._shares is not None:
            self._shares.check_same(step.value)
            self._shares.gather(self._weights, range(len(self._params)))
        self._note_updates(range(len(self._params)))
        self._steps = step.value
        self._refer_to(saved[0] if (saved[0] / "manifest.json").exists() else saved[0] / f"checkpoint-{step.value}")
        return step.value

    def state_dict(self):
        """Returns the param_groups and, under "tide", a reference to the checkpoint of the last step. With
        `checkpoints`, this call writes it if save() has not."""
        self._check_open()
        self._report_writes()
        if self._unsaved and self._checkpoints is not None:
            self.save(self._checkpoints)
        if self._unsaved:
            warnings.warn("tide.AdamW.state_dict() has param_groups only; save moments and steps before with "
                          "save(directory), or give tide.AdamW checkpoints=DIRECTORY", stacklevel=2)
        result = super().state_dict()
        if self._reference is not None and not self._unsaved:
            result["tide"] = dict(self._reference)
        return result

    def full_state_dict(self, limit=None):
        """Returns a state_dict in the format of torch.optim.AdamW, with all states in fp32; 16-bit parameters also have
        "master", their fp32 weights. Raises MemoryError if it would take more than `limit` (default: `host_memory`,
        or the free memory if that was not given)."""
        self._check_open()
        self._check_whole("full_state_dict()")
        self._report_writes()
        wanted = sum(4 * p.numel() * len(states.names(p)) for p in self._params)
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        most = library.size(limit) if limit is not None else self._settings[0]["host_bytes"] or free
        if wanted > most:
            raise MemoryError(f"full_state_dict() would take {wanted} bytes ({wanted / 2**30:.3g} GiB); the limit is "
                              f"{most} ({most / 2**30:.3g} GiB): give it limit=, or save(directory)")
        result = super().state_dict()
        number = states.numbers(self.param_groups)
        for index, p in enumerate(self._params):
            if states.steps(self._handle, index, p) > 0:
                result["state"][number[id(p)]] = states.to_torch(*states.get(self._handle, index, p))
        return result

    def load_state_dict(self, state_dict):
        """Loads the param_groups and the states of torch.optim.AdamW, of full_state_dict(), or of the checkpoint
        of a state_dict(), with the weights of that checkpoint."""
        self._check_open()
        self._check_between("load_state_dict()")
        self._report_writes()
        checkpoint = states.find(state_dict["tide"]) if state_dict.get("tide") else None
        if state_dict["state"]:
            self._check_whole("load_state_dict() with states")
        matched = states.match(state_dict, self) if state_dict["state"] else []
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        for index, state in enumerate(matched):
            self._set_state(index, state)
        self._show_weights()
        if checkpoint is not None:
            self.load(checkpoint)

    def _set_state(self, index, state):
        """Sets the states of a parameter. None: resets the states."""
        p = self._params[index]
        if state:
            tensors, count = states.from_torch(state, p)
        elif states.steps(self._handle, index, p) > 0:
            tensors, count = {name: torch.zeros(p.shape) for name in ("m", "v")}, 0
        else:
            return
        states.put(self._handle, index, p, tensors, count)
        if "master" in tensors:
            self._note_updates([index])
        self._unsaved = True

    def __getstate__(self):
        raise TypeError("a tide.AdamW owns memory of libtide and cannot be copied or pickled")

    @property
    def _step_supports_amp_scaling(self):
        """Read by torch.amp.GradScaler. If true, GradScaler calls step() without unscaling, which raises an
        error."""
        return self._overlap

    def _refuses_clipping(self, ids):
        """Returns whether gradients of these parameters are gone, or clipped by the library."""
        return any((was or self._clips) and id(p) in ids for was, p in zip(self._taken, self._params))


def _hook(this, index, _parameter):
    optimizer = this()
    if optimizer is not None and optimizer._handle is not None:
        optimizer._after_backward(index)


class _Attached:
    """Makes attached modules wait for their own parameters. Some modules use weights of others that they do not
    call (nn.MultiheadAttention uses out_proj.weight), so the first module of a step waits for the parameters of
    modules that were not called in the last step."""

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.owners = {}     # index: modules that have the parameter
        self.called = set()  # ids of modules, since the last step
        self.late = []       # indices to wait for at the first call
        self.hooks = []
        self.roots = []      # modules that were added

    def add(self, module):
        optimizer = self.optimizer()
        self.roots.append(weakref.ref(module))
        for one in module.modules():
            own = [optimizer._index[id(p)] for p in one._parameters.values() if id(p) in optimizer._index]
            for index in own:
                self.owners.setdefault(index, []).append(id(one))
            self.hooks.append(one.register_forward_pre_hook(functools.partial(self.before_forward, own)))
            self.hooks.append(one.register_state_dict_pre_hook(self.before_state_dict))
            # older versions of torch have no public name for it
            self.hooks.append(one._register_load_state_dict_pre_hook(self.before_state_dict))

    def begin_forward(self):
        """Called after a step, before the next forward."""
        optimizer = self.optimizer()
        if not self.owners:
            optimizer.synchronize()
            return
        for index in range(len(optimizer._params)):
            if index not in self.owners:
                optimizer._wait(index)
        self.late = [i for i, owners in self.owners.items() if not self.called.issuperset(owners)]
        self.called.clear()

    def before_forward(self, own, module, _arguments):
        optimizer = self.optimizer()
        if optimizer is None or optimizer._handle is None:
            return
        self.called.add(id(module))
        for index in self.late:
            optimizer._wait(index)
        self.late = []
        for index in own:
            optimizer._wait(index)

    def before_state_dict(self, *_arguments):
        """Called before state_dict() and load_state_dict(): an update that is not done would overwrite what is loaded."""
        optimizer = self.optimizer()
        if optimizer is not None and optimizer._handle is not None:
            optimizer.synchronize()

    def remove(self):
        for hook in self.hooks:
            hook.remove()

    def again(self):
        """Attaches the same modules again after the numbers of parameters have changed."""
        self.remove()
        roots, self.roots, self.hooks, self.owners, self.late = self.roots, [], [], {}, []
        for root in roots:
            if root() is not None:
                self.add(root())


def _watch_clipping():
    """Makes torch's clipping functions raise an error if they find no gradients or would clip a second time. A
    limit of infinity, with which Trainer requests the norm, is allowed. Functions imported by name before the
    first tide.AdamW are not watched."""
    def refuse(original):
        @functools.wraps(original)
        def clip(parameters, *args, **kwargs):
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            ids = {id(p) for p in parameters}
            limit = args[0] if args else kwargs.get("max_norm")
            if limit != float("inf") and any(
                    optimizer._refuses_clipping(ids) for optimizer in list(_living)):
                raise RuntimeError(
                    f"{original.__name__} after backward would clip twice or do nothing: tide.AdamW takes the "
                    f"gradients. Use only tide.AdamW(clip=...); with Hugging Face's Trainer set max_grad_norm=0")
            return original(parameters, *args, **kwargs)
        clip.tide = True
        return clip

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        original = getattr(torch.nn.utils, name)
        if not hasattr(original, "tide"):
            setattr(torch.nn.utils, name, refuse(original))
