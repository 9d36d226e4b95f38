"""states.py: the states of tide.AdamW as torch.optim.AdamW has them in its state_dict, one parameter at a time."""

import itertools
import json
import pathlib
from ctypes import byref, c_uint64

import torch

from . import library
from .library import check, lib

# "master" in a state_dict is the fp32 weights of a 16-bit parameter; torch ignores "master".
_MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v"}
_REFUSED = {"amsgrad": "AMSGrad", "maximize": "maximize"}


def _arrays(elements, tensors):
    return library.OptimArrays(elements=elements, **{name: t.data_ptr() for name, t in tensors.items()})


def steps(handle, index, weights):
    """Returns the number of steps that updated a parameter."""
    count = c_uint64()
    check(lib.tide_optim_get_states(handle, index, byref(_arrays(weights.numel(), {})), byref(count)))
    return count.value


def names(weights):
    """Returns the library's names of the states of a parameter."""
    return ["m", "v"] if weights.dtype == torch.float32 else ["m", "v", "master"]


def get(handle, index, weights):
    """Returns the states of a parameter by the library's names, in fp32, and its number of steps."""
    tensors = {name: torch.empty(weights.shape, dtype=torch.float32) for name in names(weights)}
    count = c_uint64()
    check(lib.tide_optim_get_states(handle, index, byref(_arrays(weights.numel(), tensors)), byref(count)))
    return tensors, count.value


def put(handle, index, weights, tensors, count):
    """Replaces states of a parameter; a new master also changes its weights."""
    check(lib.tide_optim_set_states(handle, index, byref(_arrays(weights.numel(), tensors)), count))


def numbers(groups):
    """Returns {id(parameter): its number in a state_dict}."""
    return {id(p): n for n, p in enumerate(itertools.chain(*(group["params"] for group in groups)))}


def to_torch(tensors, count):
    """Returns the states of one parameter as a state_dict has them."""
    state = {"step": torch.tensor(float(count))}
    state.update((name, tensors[own]) for name, own in _MOMENTS.items())
    if "master" in tensors:
        state["master"] = tensors["master"]
    return state


def _keys(state, weights):
    """Returns {key in the state_dict: the library's name}."""
    master = "master" in state and weights.dtype != torch.float32
    return {**_MOMENTS, "master": "master"} if master else _MOMENTS


def _check(state, weights, name):
    for key in _keys(state, weights):
        value = state.get(key)
        if not isinstance(value, torch.Tensor) or value.shape != weights.shape:
            found = f"of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else "missing"
            raise ValueError(f"{key} of {name} in the state_dict is {found}; expected shape {tuple(weights.shape)}")


def from_torch(state, weights):
    """Returns the states of one parameter by the library's names, and its number of steps."""
    return {own: state[key].detach().to("cpu", torch.float32).contiguous()
            for key, own in _keys(state, weights).items()}, int(state["step"])


def match(state_dict, optimizer):
    """Finds and checks the states of the parameters in a state_dict of torch.optim.AdamW. Returns a list, with
    None for a parameter without states."""
    groups = state_dict["param_groups"]
    for group in groups:
        for key, what in _REFUSED.items():
            if group.get(key):
                raise NotImplementedError(f"the state_dict is of an optimizer with {what}, which tide.AdamW does "
                                          f"not have")
        if group.get("decoupled_weight_decay") is False and group["weight_decay"] != 0:
            raise ValueError("the state_dict is of Adam; tide.AdamW decays weights apart from the gradient")
    lengths = [[len(group["params"]) for group in of] for of in (groups, optimizer.param_groups)]
    if lengths[0] != lengths[1]:
        raise ValueError(f"the state_dict has groups of {lengths[0]} parameters; the optimizer has {lengths[1]}")
    saved = list(itertools.chain(*(group["params"] for group in groups)))
    number = numbers(optimizer.param_groups)
    matched = []
    for p, name in zip(optimizer._params, optimizer._names):
        state = state_dict["state"].get(saved[number[id(p)]])
        if state:
            _check(state, p, name)
        matched.append(state)
    for p, name in optimizer._frozen:
        if saved[number[id(p)]] in state_dict["state"] and p.numel() > 0:
            raise ValueError(f"the state_dict has states of {name}, which did not require a gradient when "
                             f"tide.AdamW was created")
    return matched


# ---- references to checkpoints ----


def reference(path):
    """Returns what identifies a checkpoint in a state_dict: path and checksum."""
    path = path.absolute()
    return {"checkpoint": str(path), "xxh3": json.loads((path / "manifest.json").read_text())["xxh3"]}


def find(wanted):
    """Returns the path of the checkpoint that a state_dict refers to."""
    path = pathlib.Path(wanted["checkpoint"])
    try:
        found = json.loads((path / "manifest.json").read_text())["xxh3"]
    except FileNotFoundError:
        raise FileNotFoundError(f"the state_dict refers to the checkpoint {path}, which does not exist; with "
                                f"its states elsewhere, load(path) them and the state_dict without its key "
                                f"\"tide\"") from None
    if found != wanted["xxh3"]:
        raise ValueError(f"{path} is not the checkpoint that the state_dict refers to: it was written later")
    return path
