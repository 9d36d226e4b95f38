#!/usr/bin/env python3
"""test_programs.py: runs tide.AdamW in training programs of others."""

import contextlib
import copy
import functools
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import guest
from guest import refused, torch

if torch is not None:
    import tide

LR, DECAY = 2.0**-10, 2.0**-4  # torch's factor 1 - LR * DECAY is then exact in fp32


def create(params, **settings):
    return tide.AdamW(params, **{"host_memory": "64MiB", "cache": guest.CACHE, "threads": 1, **settings})


def network(dtype=None):
    return torch.nn.Sequential(torch.nn.Linear(16, 64, dtype=dtype), torch.nn.GELU(),
                               torch.nn.Linear(64, 4, dtype=dtype))


def check_near(a, b, of_step=1e-3):
    for p, q in zip(a.parameters(), b.parameters()):
        assert (p.detach() - q.detach()).abs().max().item() <= of_step * LR


def needs(*names):
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise guest.Skipped(f"{sys.executable} has no {name}")


# ---- Hugging Face ----


def talks(case):
    """Sends output of libraries to stderr, because stdout is TAP."""
    @functools.wraps(case)
    def quiet(folder):
        with contextlib.redirect_stdout(sys.stderr):
            case(folder)
    return quiet


def make_trainer(folder, model, optimizer, **settings):
    import transformers

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, index):
            generator = torch.Generator().manual_seed(index)
            return {"x": torch.randn(16, generator=generator), "y": torch.randn(4, generator=generator)}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, y):
            return {"loss": (self.model(x) - y).pow(2).mean()}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, num_train_epochs=1, use_cpu=True, report_to=[],
        disable_tqdm=True, logging_strategy="no", save_strategy="steps", save_steps=4, lr_scheduler_type="constant",
        remove_unused_columns=False, **settings)
    transformers.utils.logging.set_verbosity_error()
    return transformers.Trainer(model=Net(), args=arguments, train_dataset=Data(), optimizers=(optimizer, None))


@talks
def trainer(folder):
    """Hugging Face's Trainer trains and resumes as with torch.optim.AdamW; its clipping is refused."""
    needs("transformers", "accelerate")
    models = [network()]
    models += [copy.deepcopy(models[0]) for _ in range(3)]
    for model, make, name in ((models[0], torch.optim.AdamW, "torch"), (models[1], create, "tide")):
        more = {"accumulation_steps": 2, "checkpoints": folder / "states"} if make is create else {}
        optimizer = make(model.parameters(), lr=LR, weight_decay=DECAY, **more)
        make_trainer(folder / name, model, optimizer, max_grad_norm=0, gradient_accumulation_steps=2).train()
    check_near(models[0], models[1])
    optimizer = create(models[2].parameters(), lr=LR, weight_decay=DECAY, accumulation_steps=2)
    resumed = make_trainer(folder / "tide", models[2], optimizer, max_grad_norm=0, gradient_accumulation_steps=2)
    resumed.train(resume_from_checkpoint=str(folder / "tide/checkpoint-4"))
    assert optimizer.last()["step"] == 6
    for p, q in zip(models[1].parameters(), models[2].parameters()):
        assert torch.equal(p, q)
    optimizer = create(models[3].parameters(), lr=LR)
    refused(RuntimeError, "with Hugging Face's Trainer set max_grad_norm=0",
            make_trainer(folder / "clip", models[3], optimizer, max_grad_norm=1.0).train)


@talks
def accelerate(_):
    """accelerate gives torch's results; its clipping is refused."""
    needs("accelerate")
    import accelerate as library
    models = [network()]
    models.append(copy.deepcopy(models[0]))
    for model, make in zip(models, (torch.optim.AdamW, create)):
        more = {"accumulation_steps": 2, "clip": 0.5} if make is create else {}
        accelerator = library.Accelerator(cpu=True, gradient_accumulation_steps=2)
        prepared, optimizer = accelerator.prepare(model, make(model.parameters(), lr=LR, weight_decay=DECAY, **more))
        generator = torch.Generator().manual_seed(5)
        for _ in range(12):
            with accelerator.accumulate(prepared):
                x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)
                accelerator.backward((prepared(x) - y).pow(2).mean())
                if make is torch.optim.AdamW and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    assert optimizer.optimizer.last()["step"] == 6
    check_near(*models)
    refused(RuntimeError, "max_grad_norm=0", lambda: accelerator.clip_grad_norm_(prepared.parameters(), 0.5))
    accelerator.free_memory()


def grad_scaler(_):
    """GradScaler works with overlap=False, which step() asks for."""
    models = [network()]
    models.append(copy.deepcopy(models[0]))
    for model, make in zip(models, (torch.optim.AdamW, create)):
        more = {"overlap": False} if make is create else {}
        optimizer = make(model.parameters(), lr=LR, weight_decay=DECAY, **more)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        generator = torch.Generator().manual_seed(6)
        for step in range(12):
            x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss * (float("inf") if step == 5 else 1.0)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
    assert optimizer.last()["step"] == 11
    check_near(*models)
    optimizer = create(models[1].parameters(), lr=LR)
    scaler.scale(models[1](torch.ones(1, 16)).sum()).backward()
    refused(RuntimeError, "overlap=False", lambda: scaler.step(optimizer))


# ---- a killed parent ----

PARENT = """
import os, sys, time
import torch, tide

folder, cache = sys.argv[1:]

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        try:
            optimizer.synchronize()
            refused = 0
        except tide.Error as error:
            refused = error.errno
        while index >= 8 and not os.path.exists(folder + "/go on"):
            time.sleep(0.05)
        return torch.tensor([os.getpid(), refused])

weight = torch.nn.Parameter(torch.ones(1 << 16))
optimizer = tide.AdamW([weight], host_memory="64MiB", cache=cache, threads=1, store=[(folder + "/store", "64MiB")],
                       states="store")
weight.sum().backward()
optimizer.step()
loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=4, multiprocessing_context="fork")
batches = iter(loader)
found = torch.cat([next(batches) for _ in range(4)])
print(*found[:, 0].unique().tolist(), "|", *found[:, 1].unique().tolist(), flush=True)
time.sleep(600)
"""


def is_alive(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def killed_parent(folder):
    """A DataLoader's workers survive their killed parent, whose store is free."""
    (folder / "store").mkdir()
    settings = {**os.environ, "PYTHONPATH": str(guest.PACKAGE)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder), guest.CACHE], stdout=subprocess.PIPE,
                              text=True, env=settings)
    workers, refused_with = parent.stdout.readline().split("|")
    workers = [int(worker) for worker in workers.split()]
    assert len(workers) == 4 and [int(code) for code in refused_with.split()] == [10], (workers, refused_with)
    store = [(folder / "store", "64MiB")]
    weight = torch.nn.Parameter(torch.ones(1 << 16))
    refused(tide.Error, "", lambda: create([weight], store=store, states="store"))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        optimizer = create([weight], store=store, states="store")
        assert all(is_alive(worker) for worker in workers), "no worker was left: this proves nothing"
        weight.sum().backward()
        optimizer.step()
        assert optimizer.last()["step"] == 1
    finally:
        (folder / "go on").touch()
        parent.stdout.close()
        while any(is_alive(worker) for worker in workers):
            time.sleep(0.05)


# ---- DeepSpeed's parameters ----


def sizes_of_cpu_adam(_):
    """With the sizes and types of DeepSpeed's test of CPU Adam, steps agree with torch.optim.AdamW in fp32, whose
    rounded factor of decay adds an error of about 2**-23."""
    for dtype, bits in ((torch.float32, 20), (torch.float16, 11), (torch.bfloat16, 8)):
        for size in (22, 55, 64, 128, 1024, 1048576):
            start = torch.randn(size).to(dtype)
            ours = torch.nn.Parameter(start.clone())
            theirs = torch.nn.Parameter(start.float())
            optimizer, reference = create([ours]), torch.optim.AdamW([theirs])
            for _ in range(10):
                ours.grad = torch.randn(size).to(dtype)
                theirs.grad = ours.grad.float()
                optimizer.step()
                reference.step()
            off = (ours.detach().float() - theirs.detach()).abs()
            allowed = theirs.detach().abs() * 1.01 * 2.0**-bits + 1e-6
            assert (off <= allowed).all(), (dtype, size, off.max().item())
            optimizer.close()


sys.exit(guest.main([trainer, accelerate, grad_scaler, killed_parent, sizes_of_cpu_adam]))
