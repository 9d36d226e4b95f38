#!/usr/bin/env python3
"""test_adamw.py: compares tide.AdamW with torch.optim.AdamW."""

import copy
import itertools
import multiprocessing
import sys
import warnings
import weakref

import guest
from guest import refused, torch

if torch is not None:
    import tide


def network(*sizes, dtype=None):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b, dtype=dtype), torch.nn.GELU()]
    return torch.nn.Sequential(*layers[:-1])


def create(params, **settings):
    return tide.AdamW(params, **{"host_memory": "128MiB", "cache": guest.CACHE, "threads": 1, **settings})


def train(model, optimizer, steps, each=None, passes=1, scheduler=None):
    generator = torch.Generator().manual_seed(2)
    first = next(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(passes):
            x = torch.randn(8, 16, generator=generator).to(first.dtype)
            y = torch.randn(8, 4, generator=generator).to(first.dtype)
            (model(x) - y).pow(2).mean().backward()
        if each is not None:
            each(step)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def vector(model):
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def check_close(found, expected, lr, of_step=1e-3):
    """Compares the norms of weights, and elements relative to the change by one step."""
    found, expected = vector(found), vector(expected)
    norm = ((found - expected).norm() / expected.norm()).item()
    worst = ((found - expected).abs().max() / lr).item()
    print(f"# {norm:.1e} of the norm, {worst:.1e} of a step's change")
    assert norm <= 1e-6 and worst <= of_step, (norm, worst)


def check_same(found, expected):
    assert torch.equal(vector(found), vector(expected))


LR, DECAY = 2.0**-10, 2.0**-4  # torch's factor 1 - LR * DECAY is then exact in fp32


def same_as_torch(_):
    """100 steps in fp32 end near torch's weights; gradients are dropped after backward."""
    a = network(16, 64, 64, 4)
    b = copy.deepcopy(a)
    optimizer = create(b.parameters(), lr=LR, weight_decay=DECAY)
    train(a, torch.optim.AdamW(a.parameters(), lr=LR, weight_decay=DECAY), 100)
    train(b, optimizer, 100, lambda _: no_gradient(b))
    check_close(b, a, LR)
    assert optimizer.last()["step"] == 100


def no_gradient(model):
    assert all(p.grad is None for p in model.parameters())


def near_double(_):
    """Weights are near torch's in fp64. torch rounds the default factor of decay in fp32."""
    a = network(16, 64, 64, 4)
    b = copy.deepcopy(a)
    a = a.double()
    train(a, torch.optim.AdamW(a.parameters()), 100)
    train(b, create(b.parameters()), 100)
    check_close(b, a, 1e-3, 1e-2)


def bf16(_):
    """bf16 weights are the roundings of an fp32 master."""
    b = network(16, 64, 4, dtype=torch.bfloat16)
    masters = [torch.nn.Parameter(p.detach().float()) for p in b.parameters()]
    reference = torch.optim.AdamW(masters, lr=LR, weight_decay=DECAY)
    optimizer = create(b.parameters(), lr=LR, weight_decay=DECAY)
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        for p, master in zip(b.parameters(), masters):
            p.grad = torch.randn(p.shape, generator=generator).bfloat16()
            master.grad = p.grad.float()
        optimizer.step()
        reference.step()
    for p, master in zip(b.parameters(), masters):
        off = (p.detach().float() - master.detach()).abs() / master.detach().abs().clamp(min=1e-3)
        assert off.max().item() <= 2.0**-8, off.max()
        assert p.dtype == torch.bfloat16


def groups_and_scheduler(_):
    """Groups have their own settings, which a scheduler can change while updates run."""
    for clip in (0.0, 1e6):
        models = [network(16, 64, 64, 4)]
        models.append(copy.deepcopy(models[0]))
        for model, kind in zip(models, (torch.optim.AdamW, create)):
            weights = [p for p in model.parameters() if p.dim() > 1]
            biases = [p for p in model.parameters() if p.dim() == 1]
            optimizer = kind([{"params": weights, "weight_decay": DECAY, "betas": (0.8, 0.99)},
                              {"params": biases, "lr": 4 * LR}], lr=LR, weight_decay=0,
                             **({"clip": clip} if kind is create else {}))
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step // 10))
            if kind is create:
                optimizer.attach(model)
            train(model, optimizer, 60, scheduler=scheduler)
            if kind is create:
                optimizer.synchronize()
        check_close(models[1], models[0], LR)

    def raise_rate(_):
        optimizer.param_groups[0]["lr"] = 1.0

    refused(RuntimeError, "between backward and step", lambda: train(models[1], optimizer, 1, raise_rate))


def states_on_a_drive(folder):
    """States in files give the bits of states in memory."""
    a = network(16, 1024, 1024, 4)
    b = copy.deepcopy(a)
    optimizer = create(b.parameters(), store=[(folder, "256MiB")], states="store")
    info = optimizer.describe()
    assert info["store_bytes"] > 0 and info["resident_bytes"] == 0, info
    train(a, create(a.parameters()), 3)
    train(b, optimizer, 3)
    check_same(b, a)
    assert list(folder.iterdir())
    optimizer.close()
    refused(RuntimeError, "was closed", optimizer.step)


def without_gradient(_):
    """A parameter without a gradient does not change; a step without gradients does nothing."""
    a = network(16, 32, 32, 4)
    b = copy.deepcopy(a)
    for model in (a, b):
        model.extra = torch.nn.Parameter(torch.ones(7))
        model.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    settings = {"lr": LR, "weight_decay": DECAY}
    for model, optimizer in ((a, torch.optim.AdamW(a.parameters(), **settings)),
                             (b, create(b.parameters(), **settings))):
        optimizer.step()
        assert torch.equal(model.extra, torch.ones(7))
        train(model, optimizer, 5)
        assert torch.equal(model.extra, torch.ones(7))
        train(model, optimizer, 5, lambda _, m=model: m.extra.sum().backward())
        assert torch.equal(model.frozen, torch.ones(3))
    check_close(b, a, LR)


def clipping(_):
    """clip= clips like torch's clip_grad_norm_, a call of which is an error."""
    a = network(16, 64, 64, 4)
    b = copy.deepcopy(a)
    norms = []
    optimizer = create(b.parameters(), lr=LR, weight_decay=DECAY, clip=0.5)
    optimizer.attach(b)
    train(a, torch.optim.AdamW(a.parameters(), lr=LR, weight_decay=DECAY), 50,
          lambda _: norms.append(torch.nn.utils.clip_grad_norm_(a.parameters(), 0.5).item()))
    train(b, optimizer, 50)
    last = optimizer.last()
    optimizer.synchronize()
    check_close(b, a, LR)
    assert max(norms) > 0.5 and abs(last["grad_norm"] / norms[-1] - 1) < 1e-5, (last, norms)
    refused(RuntimeError, "max_grad_norm=0", lambda: train(
        b, optimizer, 1, lambda _: torch.nn.utils.clip_grad_norm_(b.parameters(), 0.5)))
    optimizer.step()


def accumulation(_):
    """Accumulated backward passes give torch's result; too many are an error."""
    for way in ("steps", "with"):
        a = network(16, 32, 4)
        b = copy.deepcopy(a)
        optimizer = create(b.parameters(), lr=LR, weight_decay=0,
                           accumulation_steps=3 if way == "steps" else 1)
        train(a, torch.optim.AdamW(a.parameters(), lr=LR, weight_decay=0), 10, passes=3)
        if way == "steps":
            train(b, optimizer, 10, passes=3)
            check_close(b, a, LR)
            train(b, optimizer, 1, passes=2)
            assert optimizer.last()["step"] == 11
            refused(RuntimeError, "second gradient", lambda: train(b, optimizer, 1, passes=4))
        else:
            with optimizer.accumulate():
                train(b, optimizer, 10, passes=3)
            check_close(b, a, LR)
            refused(RuntimeError, "cannot be dropped", lambda: train(
                b, optimizer, 1, lambda _: optimizer.zero_grad()))


def weights_that_the_program_writes(_):
    """Updates start from the weights that the program loads between steps."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        b = network(16, 32, 4, dtype=dtype)
        saved = copy.deepcopy(b.state_dict())
        optimizer = create(b.parameters(), lr=1e-2)
        train(b, optimizer, 20)
        b.load_state_dict(saved)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        train(b, optimizer, 1)
        assert all(torch.equal(p, saved[name]) for name, p in b.named_parameters()), dtype
    b.to(torch.float32)
    refused(RuntimeError, "other memory", lambda: train(b, optimizer, 1))


def averaged_weights(_):
    """The program may write averages of the weights (EMA) back between steps. weights_changed() reports a write
    through p.data."""
    def average(model, averaged, optimizer, hidden):
        if optimizer is not None:
            optimizer.synchronize()
        averaged.update_parameters(model)
        with torch.no_grad():
            for p, mean in zip(model.parameters(), averaged.module.parameters()):
                if hidden:
                    p.data.copy_(mean)
                    if optimizer is not None:
                        optimizer.weights_changed(p)
                else:
                    p.copy_(mean)

    for clip in (0.0, 1e6):
        a = network(16, 32, 4)
        b = copy.deepcopy(a)
        theirs = torch.optim.AdamW(a.parameters(), lr=LR, weight_decay=DECAY)
        ours = create(b.parameters(), lr=LR, weight_decay=DECAY, clip=clip)
        ours.attach(b)
        means = [torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.75))
                 for m in (a, b)]
        for turn in range(4):
            for model, optimizer, mean in ((a, theirs, means[0]), (b, ours, means[1])):
                train(model, optimizer, 5)
                average(model, mean, ours if optimizer is ours else None, turn % 2)
        ours.synchronize()
        check_close(b, a, LR)
    for dtype in (torch.bfloat16, torch.float16):
        b = network(16, 32, 4, dtype=dtype)
        optimizer = create(b.parameters(), lr=1e-2)
        mean = torch.optim.swa_utils.AveragedModel(b, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
        for turn in range(2):
            train(b, optimizer, 5)
            average(b, mean, optimizer, turn)
            other = copy.deepcopy(b)
            states = optimizer.full_state_dict()
            for number, p in enumerate(b.parameters()):
                states["state"][number]["master"] = p.detach().float()
            fresh = create(other.parameters())
            fresh.load_state_dict(states)
            train(b, optimizer, 5)
            train(other, fresh, 5)
            check_same(b, other)


def states_after_writes(folder):
    """Saved and copied states have the masters of weights that the program wrote."""
    runs = itertools.count()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        def begin():
            b = network(16, 32, 4, dtype=dtype)
            optimizer = create(b.parameters(), lr=1e-2, checkpoints=folder / f"{dtype}-{next(runs)}")
            train(b, optimizer, 3)
            optimizer.state_dict()
            new = [torch.randn_like(p) for p in b.parameters()]
            with torch.no_grad():
                for p, value in zip(b.parameters(), new):
                    p.copy_(value)
            return b, optimizer, new

        b, optimizer, _ = begin()
        c = network(16, 32, 4, dtype=dtype)
        resumed = create(c.parameters(), lr=1e-2)
        resumed.load_state_dict(optimizer.state_dict())
        check_same(c, b)
        for model, one in ((b, optimizer), (c, resumed)):
            train(model, one, 2)
        check_same(c, b)
        b, optimizer, new = begin()
        full = optimizer.full_state_dict()
        for state, value in zip(full["state"].values(), new):
            assert torch.equal(state.get("master", value), value.float())
        b, optimizer, new = begin()
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, dtype=dtype))]})
        assert all(torch.equal(p, value) for p, value in zip(b.parameters(), new)), dtype


def writes_during_updates(folder):
    """With attach(), writing to weights before their update has ended is an error; synchronize() waits for the
    end."""
    for call in (lambda b, _: b(torch.ones(1, 16)), lambda _, optimizer: optimizer.synchronize(),
                 lambda _, optimizer: optimizer.save(folder)):
        b = network(16, 32, 4)
        optimizer = create([("first", b[0].weight), *b[2].named_parameters()], clip=1.0)
        optimizer.attach(b)
        train(b, optimizer, 1)
        with torch.no_grad():
            b[0].weight.zero_()
        refused(RuntimeError, "the weights of first were written to after step()", lambda: call(b, optimizer))
        try:
            optimizer.synchronize()
        except RuntimeError:
            pass  # it had not waited yet
        with torch.no_grad():
            b[0].weight.zero_()
        train(b, optimizer, 1)


class Tied(torch.nn.Module if torch else object):
    """The head uses the embedding's table."""
    def __init__(self, dtype=None):
        super().__init__()
        self.table = torch.nn.Embedding(40, 16, dtype=dtype)
        self.middle = torch.nn.Linear(16, 16, dtype=dtype)
        self.head = torch.nn.Linear(16, 40, bias=False, dtype=dtype)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(torch.nn.functional.gelu(self.middle(self.table(ids))))


def tied_weights(_):
    """A weight of two modules is one parameter, as in torch. Different parameters in the same memory are
    refused."""
    def steps(model, optimizer, count):
        generator = torch.Generator().manual_seed(4)
        for _ in range(count):
            ids = torch.randint(40, (8,), generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(ids).float(), ids.roll(1)).backward()
            optimizer.step()

    for clip in (0.0, 0.5):
        a = Tied()
        b = copy.deepcopy(a)
        theirs = torch.optim.AdamW(a.parameters(), lr=LR, weight_decay=DECAY)
        ours = create(b.parameters(), lr=LR, weight_decay=DECAY, clip=clip)
        ours.attach(b)
        assert len(ours._params) == 3
        if clip:
            step = theirs.step
            theirs.step = lambda: (torch.nn.utils.clip_grad_norm_(a.parameters(), clip), step())
        saved = copy.deepcopy(a.state_dict())
        for turn in range(3):
            for model, optimizer in ((a, theirs), (b, ours)):
                steps(model, optimizer, 10)
                if turn == 1:
                    model.load_state_dict(saved)
        ours.synchronize()
        assert b.head.weight is b.table.weight
        check_close(b, a, LR, 1e-2)
    for dtype in (torch.bfloat16, torch.float16):
        b = Tied(dtype)
        saved = copy.deepcopy(b.state_dict())
        optimizer = create(b.parameters(), lr=1e-2)
        steps(b, optimizer, 10)
        b.load_state_dict(saved)
        optimizer.param_groups[0]["lr"] = 0.0
        steps(b, optimizer, 1)
        assert all(torch.equal(p, saved[name]) for name, p in b.named_parameters()), dtype
    whole = torch.zeros(100)
    halves = [torch.nn.Parameter(whole[:60]), torch.nn.Parameter(whole[50:])]
    refused(tide.Error, "have weights in the same memory; tied weights are one parameter", lambda: create(halves))


def borrowed_gradients(_):
    """Writing to a gradient that the library uses, or freeing its memory, is an error. check_gradients finds a
    write before weights change."""
    def begin(**settings):
        p = torch.nn.Parameter(torch.ones(1000))
        optimizer = create([("weights", p)], clip=1.0, **settings)
        (p * p).sum().backward()
        return optimizer, optimizer._borrowed[0][0], p

    optimizer, gradient, _ = begin()
    gradient.add_(1)
    refused(RuntimeError, "the gradient of weights was written to or freed", optimizer.step)
    optimizer, gradient, p = begin(check_gradients=True)
    gradient.add_(1)
    refused(tide.Error, "the gradient of weights at ", optimizer.step)
    assert torch.equal(p, torch.ones(1000))
    optimizer, gradient, _ = begin(check_gradients=True)
    optimizer.step()
    gradient.add_(1)
    gradient.untyped_storage().resize_(0)
    optimizer.synchronize()
    optimizer, gradient, _ = begin()
    token = optimizer._borrowed[0][3]
    optimizer._borrowed[0] = (gradient, gradient.data_ptr() + 64, gradient._version, token)  # as if it had been moved
    refused(RuntimeError, "the gradient of weights was written to or freed", optimizer.step)
    for change in (lambda gradient: gradient.mul_(100), lambda gradient: gradient.untyped_storage().resize_(0)):
        pair = [torch.nn.Parameter(torch.ones(10)) for _ in range(2)]
        optimizer = create(pair, clip=1.0)
        sum((p * p).sum() for p in pair).backward()
        change(optimizer._pending[0][1])  # it was taken in backward and is submitted in step()
        for _ in range(2):  # the step is not closed without this gradient
            refused(RuntimeError, "was written to or freed", optimizer.step)
        assert all(torch.equal(p, torch.ones(10)) for p in pair) and optimizer.last()["step"] == 0
    model = network(16, 8)
    optimizer = create(model.parameters(), clip=1.0)
    optimizer.attach(model)
    buffers = [torch.ones_like(p) for p in model.parameters()]
    for _ in range(3):  # the forward waits, then buffers may be used again
        model(torch.ones(1, 16))
        for p, buffer in zip(model.parameters(), buffers):
            p.grad = buffer.mul_(0.5)
        optimizer.step()
    optimizer.synchronize()


def negated_gradients(_):
    """A gradient that torch stores negated is used with the right sign."""
    for clip in (0.0, 1.0):
        p = torch.nn.Parameter(torch.zeros(1))
        optimizer = create([p], lr=LR, weight_decay=0, clip=clip)
        p.grad = torch.full((1,), 1j, dtype=torch.complex64).conj().imag
        assert p.grad.is_neg() and p.grad.item() == -1
        optimizer.step()
        assert p.item() > 0


def borrowed_again(_):
    """A submit checks and ends the earlier borrow of the same gradient."""
    model = network(16, 4)
    optimizer = create(model.parameters(), clip=1.0)
    optimizer.attach(model)
    train(model, optimizer, 1)
    assert optimizer._closed == len(optimizer._borrowed) == 2
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    lib = tide.library.lib
    poll = lib.tide_optim_poll
    lib.tide_optim_poll = lambda *_: 0
    message = f"the gradient of {optimizer._names[1]} was written to"
    optimizer._borrowed[1][0].add_(1)
    try:
        refused(RuntimeError, message, optimizer.step)
        optimizer.step()  # the gradient that was not submitted is still there
    finally:
        lib.tide_optim_poll = poll
    assert optimizer.last()["step"] == 2 and optimizer._closed == len(optimizer._borrowed) == 2
    optimizer._borrowed[1][0].add_(1)
    refused(RuntimeError, message, lambda: model(torch.ones(1, 16)))


def dropped_in_forward(_):
    """With attach(), a module's forward frees the gradients whose update has ended."""
    for clip in (0.0, 1.0):
        model = network(16, 8, 4)
        optimizer = create(model.parameters(), clip=clip)
        optimizer.attach(model)
        train(model, optimizer, 1)
        assert len(optimizer._borrowed) == 4 or not clip
        gradients = [weakref.ref(gradient) for gradient, *_ in optimizer._borrowed.values()]
        seen = []  # after the hook that waits
        model[2].register_forward_pre_hook(lambda *_: seen.append(sorted(optimizer._borrowed)))
        with torch.no_grad():
            model(torch.ones(1, 16))
        assert seen == [[]] and optimizer._closed == 0, seen
        assert not any(gradient() is not None for gradient in gradients)


def attached(_):
    """With attach(), forward sees updated weights, even of a module that is not called."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(16, 32)
            self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)
            self.last = torch.nn.Linear(32, 4)

        def forward(self, x):
            x = self.first(x).unsqueeze(1)
            return self.last(self.attention(x, x, x)[0].squeeze(1))

    a = Net()
    b = copy.deepcopy(a)
    train(a, create(a.parameters(), clip=0.1), 20)
    optimizer = create(b.parameters(), clip=0.1)
    optimizer.attach(b)
    train(b, optimizer, 20)
    assert all(optimizer._waiting)
    b(torch.ones(1, 16))
    assert not any(optimizer._waiting)
    check_same(b, a)
    train(b, optimizer, 1)
    assert any(optimizer._waiting) and b.state_dict() and not any(optimizer._waiting)
    train(b, optimizer, 1)
    assert any(optimizer._waiting)
    b.load_state_dict(a.state_dict())
    assert not any(optimizer._waiting)
    check_same(b, a)


def stale_weights(_):
    """Using a graph's weights after their update is an error of autograd."""
    w = torch.nn.Parameter(torch.ones(8))
    z = torch.ones(8, requires_grad=True)
    optimizer = create([w])
    kept = (w.detach() * z).sum()
    (w * 2).sum().backward()
    refused(RuntimeError, "inplace operation", kept.backward)
    optimizer.step()


def small_gradients(folder):
    """Gradients of small parameters are submitted together, and belong to their step."""
    def loss(params):
        return sum((p * p).sum() for p in params)

    for clip, count in ((0.0, 70), (0.5, 70), (0.5, 5)):
        ours = torch.nn.ParameterList(torch.nn.Parameter(torch.full((3,), 1.0 + i / 64)) for i in range(count))
        theirs = copy.deepcopy(ours)
        optimizer = create(ours.parameters(), lr=LR, weight_decay=DECAY, clip=clip)
        optimizer.attach(ours)
        reference = torch.optim.AdamW(theirs.parameters(), lr=LR, weight_decay=DECAY)
        for _ in range(3):
            loss(ours).backward()
            no_gradient(ours)
            assert len(optimizer._borrowed) + len(optimizer._pending) <= count
            refused(tide.Error, "", lambda: optimizer.save(folder / f"{clip}-{count}"))
            loss(theirs).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip)
            optimizer.step()
            reference.step()
            reference.zero_grad()
            for index in range(count):
                optimizer._wait(index)
        check_close(ours, theirs, LR)
        gradients = [torch.ones(3) for _ in ours]
        left = [weakref.ref(gradient) for gradient in gradients]
        for p in ours:
            p.grad = gradients.pop()
        optimizer.step()
        optimizer.synchronize()
        assert not any(one() is not None for one in left)
        loss(ours).backward()
        assert optimizer._pending
        refused(RuntimeError, "second gradient", lambda: loss(ours).backward())
        optimizer.close()
        assert not optimizer._pending and not optimizer._borrowed


def refusals(_):
    """Wrong use raises an exception with a message."""
    good = torch.nn.Parameter(torch.ones(4, 4))
    turned = torch.nn.Parameter(torch.ones(4, 6).t())
    refused(ValueError, "w.turned is not contiguous", lambda: create([("w.turned", turned)]))
    refused(ValueError, "parameter 1 of group 0 is not contiguous", lambda: create([good, turned]))
    refused(ValueError, "float64", lambda: create([torch.nn.Parameter(torch.ones(4).double())]))
    refused(NotImplementedError, "meta", lambda: create([torch.nn.Parameter(torch.ones(4, device="meta"))]))
    refused(ValueError, "moments", lambda: create([good], moments="fp8"))
    refused(ValueError, "invalid size", lambda: create([good], host_memory="4 cats"))
    refused(tide.Error, "need a store", lambda: create([good], states="store"))
    refused(tide.Error, "", lambda: create([good], host_memory=4096))
    refused(tide.Error, "", lambda: create([good], store="/no/such/folder", states="store"))
    refused(ValueError, "invalid store ('/nvme',)", lambda: create([good], store=[("/nvme",)]))
    refused(ValueError, "invalid store 7", lambda: create([good], store=[7]))
    refused(ValueError, 'invalid size "/nvme1"', lambda: create([good], store=("/nvme0", "/nvme1")))
    optimizer = create([good])
    refused(ValueError, "is not contiguous", lambda: optimizer.add_param_group({"params": [turned]}))
    assert len(optimizer.param_groups) == 1
    refused(TypeError, "copied", lambda: copy.deepcopy(optimizer))
    good.grad = torch.ones(4, 4).to_sparse()
    refused(ValueError, "dense", optimizer.step)
    good.grad = None


def not_finite(folder):
    """A gradient that is not finite is an error, or its step is skipped. After the error, no checkpoint is
    written."""
    for check in (False, True):
        p = torch.nn.Parameter(torch.ones(8))
        optimizer = create([("weights", p)], check_overflow=check)
        p.grad = torch.full((8,), float("nan"))
        if check:
            optimizer.step()
            assert optimizer.last()["skipped"] and torch.equal(p, torch.ones(8))
            p.grad = torch.ones(8)
            optimizer.step()
            assert not torch.equal(p, torch.ones(8))
        else:
            optimizer.step()  # without clip, updates do not wait for the norm: the weights are those of torch
            assert torch.isnan(p).all()
            refused(tide.Error, "weights", optimizer.last)
            refused(tide.Error, "weights", lambda: optimizer.save(folder))
            p.grad = torch.ones(8)
            refused(tide.Error, "weights", lambda: (optimizer.step(), optimizer.last()))


def state_dict(folder):
    """A state_dict has groups without states, or refers to a checkpoint, which is loaded with it."""
    b = network(16, 32, 4, dtype=torch.bfloat16)
    optimizer = create(b.parameters(), lr=0.25)
    assert "tide" not in optimizer.state_dict()
    train(b, optimizer, 1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        saved = optimizer.state_dict()
    assert "save(directory)" in str(heard[0].message) and saved["state"] == {} and "tide" not in saved
    other = create(network(16, 32, 4, dtype=torch.bfloat16).parameters())
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.25
    optimizer.save(folder / "saved")
    torch.save(optimizer.state_dict(), folder / "state.pt")
    train(b, optimizer, 1)
    optimizer.save(folder / "saved")
    train(b, optimizer, 1)
    c = network(16, 32, 4, dtype=torch.bfloat16)
    resumed = create(c.parameters(), checkpoints=folder / "own")
    saved = torch.load(folder / "state.pt", weights_only=True)
    resumed.load_state_dict(saved)
    assert resumed.state_dict()["tide"] == saved["tide"] and not (folder / "own").exists()
    train(c, resumed, 1)
    train(c, resumed, 1)
    check_same(c, b)
    assert resumed.state_dict()["tide"]["checkpoint"] == str(folder / "own/checkpoint-3")
    other = create(network(16, 32, 4, dtype=torch.bfloat16).parameters())
    (folder / "saved/checkpoint-1").rename(folder / "kept")
    refused(FileNotFoundError, "does not exist", lambda: other.load_state_dict(saved))
    (folder / "saved/checkpoint-2").rename(folder / "saved/checkpoint-1")
    refused(ValueError, "is not the checkpoint", lambda: other.load_state_dict(saved))
    assert other.load(folder / "kept") == 1


def states_of_torch(_):
    """Training continues from torch's states, and in torch from tide's. full_state_dict() is limited."""
    a = network(16, 64, 4)
    settings = {"lr": LR, "weight_decay": DECAY}
    a.unused = torch.nn.Parameter(torch.ones(3))
    reference = torch.optim.AdamW(a.parameters(), **settings)
    train(a, reference, 20)
    b = copy.deepcopy(a)
    optimizer = create(b.parameters(), lr=1.0)
    b.unused.sum().backward()
    optimizer.step()
    with torch.no_grad():
        b.unused.fill_(1)
    b.load_state_dict(a.state_dict())
    optimizer.load_state_dict(reference.state_dict())
    assert optimizer.param_groups[0]["lr"] == LR
    train(a, reference, 20)
    train(b, optimizer, 20)
    check_close(b, a, LR)
    full = optimizer.full_state_dict(limit="1MiB")
    saved = reference.state_dict()
    assert full["state"].keys() == saved["state"].keys() and len(full["state"]) == 4
    for number, state in saved["state"].items():
        assert full["state"][number].keys() == state.keys()
        assert torch.equal(full["state"][number]["step"], state["step"]) and state["step"].item() == 40
    back = copy.deepcopy(b)
    again = torch.optim.AdamW(back.parameters(), **settings)
    again.load_state_dict(full)
    train(back, again, 20)
    train(b, optimizer, 20)
    check_close(b, back, LR)
    refused(MemoryError, "the limit is 4096", lambda: optimizer.full_state_dict(limit=4096))
    tight = create([torch.nn.Parameter(torch.ones(1 << 16))], host_memory="16MiB")
    assert tight.full_state_dict()["state"] == {}
    wrong = copy.deepcopy(saved)
    wrong["param_groups"][0]["amsgrad"] = True
    refused(NotImplementedError, "AMSGrad", lambda: optimizer.load_state_dict(wrong))
    wrong = copy.deepcopy(saved)
    del wrong["state"][1]["exp_avg_sq"]
    refused(ValueError, "exp_avg_sq of ", lambda: optimizer.load_state_dict(wrong))
    wrong["param_groups"][0]["params"].pop()
    refused(ValueError, "groups of [4] parameters", lambda: optimizer.load_state_dict(wrong))


def masters_of_states(_):
    """full_state_dict() of bf16 weights has their masters."""
    a = network(16, 64, 4, dtype=torch.bfloat16)
    optimizer = create(a.parameters(), lr=1e-2)
    train(a, optimizer, 20)
    b = network(16, 64, 4, dtype=torch.bfloat16)
    other = create(b.parameters())
    other.load_state_dict(optimizer.full_state_dict())
    check_same(b, a)
    train(a, optimizer, 20)
    train(b, other, 20)
    check_same(b, a)


def later_groups(folder):
    """A group that is added between steps trains like an older one without gradients; a group that does not fit is
    refused."""
    for settings in ({}, {"store": [(folder, "256MiB")], "states": "store"}, {"clip": 1e6}):
        a = network(16, 64, 4, dtype=torch.bfloat16)
        b = copy.deepcopy(a)
        whole = create([{"params": list(a[0].parameters())}, {"params": list(a[2].parameters()), "lr": 2 * LR}],
                       lr=LR, clip=settings.get("clip", 0.0))
        part = create(b[0].parameters(), lr=LR, **settings)
        part.attach(b)
        for model, optimizer in ((a, whole), (b, part)):
            model[2].requires_grad_(False)
            train(model, optimizer, 5)
            model[2].requires_grad_(True)
        big = torch.nn.Parameter(torch.empty(1 << 25))
        refused(tide.Error, "", lambda: part.add_param_group({"params": [big]}))
        part.add_param_group({"params": list(b[2].parameters()), "lr": 2 * LR})
        for model, optimizer in ((a, whole), (b, part)):
            train(model, optimizer, 5)
            optimizer.synchronize()
        check_same(b, a)
        saved = part.full_state_dict()
        saved["param_groups"][0]["lr"] = 1.0
        (b(torch.ones(1, 16, dtype=torch.bfloat16))).sum().backward()
        for call in (lambda: part.add_param_group({"params": [big]}), lambda: part.load_state_dict(saved),
                     lambda: part.load(folder)):
            refused(RuntimeError, "between backward and step", call)
        part.step()
        part.close()


def checkpoints(folder):
    """A loaded run has the bits of an uninterrupted one; another model is refused."""
    for dtype in (torch.float32, torch.bfloat16):
        a = network(16, 32, 4, dtype=dtype)
        optimizer = create(a.parameters(), lr=1e-2)
        train(a, optimizer, 10)
        optimizer.save(folder / str(dtype))
        train(a, optimizer, 10)
        b = network(16, 32, 4, dtype=dtype)
        resumed = create(b.parameters(), lr=1e-2)
        assert resumed.load(folder / str(dtype)) == 10
        train(b, resumed, 10)
        check_same(b, a)
        refused(tide.Error, "", lambda: create(network(16, 8, 4).parameters()).load(folder / str(dtype)))
        refused(tide.Error, "", lambda: resumed.load(folder / "none"))


def data_loader_workers(_):
    """Forked workers may run while an optimizer exists, but not use it."""
    b = network(16, 32, 4)
    optimizer = create(b.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randn(32, 4))
    for x, y in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork"):
        optimizer.zero_grad()
        (b(x) - y).pow(2).mean().backward()
        optimizer.step()
    assert optimizer.last()["step"] == 4
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(target=_use_in_child, args=(optimizer, theirs))
    child.start()
    assert "forked" in ours.recv()
    child.join()
    assert child.exitcode == 0
    train(b, optimizer, 1)


def _use_in_child(optimizer, pipe):
    try:
        optimizer.synchronize()
        pipe.send("no error")
    except tide.Error as error:
        pipe.send(str(error))
    optimizer.close()


sys.exit(guest.main([same_as_torch, near_double, bf16, groups_and_scheduler, states_on_a_drive, without_gradient,
                     clipping, accumulation, weights_that_the_program_writes, averaged_weights, states_after_writes,
                     writes_during_updates, tied_weights, negated_gradients,
                     borrowed_gradients, borrowed_again, dropped_in_forward, attached, stale_weights,
                     small_gradients, refusals, not_finite, state_dict, states_of_torch, masters_of_states,
                     later_groups, checkpoints, data_loader_workers]))
