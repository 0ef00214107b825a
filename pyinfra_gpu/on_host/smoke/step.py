"""S4: one training step under DistributedDataParallel, each of its results recorded.

The learning rate is chosen so that the loss must fall by LOSS_DROP: to first order, a step of
size lr along the gradient g lowers the loss by lr * |g|^2. So a single figure covers the forward
pass, the backward pass, the averaging and the optimizer; a sum in place of a mean doubles it.
"""

# No `from __future__ import annotations`: DDP compares the hook's annotations with the types.

import ctypes
import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .check import Fact, Facts, Want, fail, pairs
from .collectives import difference
from .lazy import dist, torch

if TYPE_CHECKING:
    from .worker import Rank

VOCABULARY = 8192
"""The first loss of an untrained model is its logarithm, 9.01."""
_WIDTH, _LENGTH, _BATCH = 128, 64, 8
LOSS_DROP = 0.02
"""Small enough for the first order to hold within one per cent, large against fp32 rounding."""
LOSS_TOLERANCE = 0.2
DROP_TOLERANCE = 0.1


def _model() -> "torch.nn.Module":
    """Return a small transformer: every kind of layer a real one has, quick enough on a CPU.

    Its first loss is ln(vocabulary), by its small weights. They are not zero: with a head at zero
    no gradient would reach the layers below.
    """
    nn: Any = torch.nn
    how = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    layers = [nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, **how) for _ in range(2)]
    head = nn.Linear(_WIDTH, VOCABULARY, bias=False)
    model: torch.nn.Module = nn.Sequential(
        nn.Embedding(VOCABULARY, _WIDTH), *layers, nn.LayerNorm(_WIDTH), head
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def measure(it: "Rank") -> None:
    """Record initial parameters, gradients, losses and final parameters of one step."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    averaged: list[torch.Tensor] = []
    local: list[torch.Tensor] = []
    group: Any = dist.group.WORLD

    def hook(
        group: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined, unused-ignore]
    ) -> torch.futures.Future[torch.Tensor]:
        """Average as DDP does without a hook, after taking a copy."""
        averaged.extend(bucket.parameters())
        local.append(bucket.buffer().clone())
        return default_hooks.allreduce_hook(group, bucket)

    with it.journal.measuring("parameters_before") as value:
        torch.manual_seed(1000 + it.rank)  # ranks differ, so equal ones prove DDP's broadcast
        model = torch.nn.parallel.DistributedDataParallel(_model().to(it.device))
        model.register_comm_hook(group, hook)
        value["sha256"] = sha256(model.parameters())
    generator = torch.Generator().manual_seed(2000 + it.rank)  # each rank has its own data
    text = torch.randint(VOCABULARY, (_BATCH, _LENGTH + 1), generator=generator).to(it.device)

    def loss() -> torch.Tensor:
        logits = model(text[:, :-1]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, text[:, 1:].flatten())

    with it.journal.measuring("gradients") as value:
        before: Any = loss()
        before.backward()
        value.update(_gradients(list(model.parameters()), averaged, local, it.world_size))
    lr = LOSS_DROP / (value["norm_squared"] or float("inf"))  # zero is for the judge to see
    with it.journal.measuring("step") as value:
        torch.optim.SGD(model.parameters(), lr=lr).step()
        with torch.no_grad():
            after = loss()
        value.update(lr=lr, loss_before=before.item(), loss_after=after.item())
        value["non_finite"] = sum(map(_non_finite, model.parameters()))
        value["sha256"] = sha256(model.parameters())


def _gradients(
    parameters: list[Any], averaged: list[Any], local: list["torch.Tensor"], ranks: int
) -> dict[str, Any]:
    """Compare the averaged gradients with the mean of all ranks' local ones.

    + averaged: the parameters whose gradients were; local: what they were before, in that order
    """

    def gradient(parameter: Any) -> torch.Tensor:
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    every = [gradient(parameter) for parameter in parameters]
    # Where nothing was exchanged, the gradients are still the local ones.
    mean = torch.cat([gradient(each).flatten() for each in averaged or parameters])
    mine = torch.cat(local) if local else mean
    everyone = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(everyone, mine)
    return {
        "elements": sum(each.numel() for each in parameters),
        "averaged": sum(each.numel() for each in averaged),
        "norm_squared": sum(float(each.double().square().sum()) for each in every),
        "non_finite": sum(map(_non_finite, every)),
        "local_sha256": sha256([mine]),
        "gathered_sha256": [sha256([piece]) for piece in everyone],
        "sha256": sha256(every),
        "wrong": _not_the_mean(mean, everyone),
    }


def _not_the_mean(mean: "torch.Tensor", everyone: list["torch.Tensor"]) -> str | None:
    """For two ranks the mean is one addition, whose order does not matter: all bits must agree.
    For more, the order is the back end's: the bound is that of any order in single precision.
    """
    ranks = len(everyone)
    if ranks <= 2:
        return difference(mean, sum((piece / ranks for piece in everyone[1:]), everyone[0] / ranks))
    exact = torch.stack(everyone).double()
    bound = 2 * ranks * 2.0**-24 * exact.abs().mean(0) + 2.0**-126
    wrong = int((~((mean.double() - exact.mean(0)).abs() <= bound)).sum())
    return f"{wrong} of {mean.numel()} elements" if wrong else None


def sha256(tensors: "Iterable[torch.Tensor]") -> str:
    """Return the SHA-256 over the bytes of `tensors` in order; there may be no numpy."""
    digest = hashlib.sha256()
    for tensor in tensors:
        here = tensor.detach().contiguous().cpu()
        digest.update(ctypes.string_at(here.data_ptr(), here.numel() * here.element_size()))
    return digest.hexdigest()


def _non_finite(tensor: "torch.Tensor") -> int:
    return int((~torch.isfinite(tensor)).sum())


# -- judged


def mean_gradient(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether all gradients were averaged, and are the mean of the ranks' own."""
    gradients = mine["gradients"]
    missing = gradients["elements"] - gradients["averaged"]
    if missing == gradients["elements"]:
        fail("it exchanged no gradient at all: each rank trained by itself")
    if missing:
        fail(f"it left {missing} gradient elements out of the averaging")
    if gradients["wrong"]:
        fail(f"the averaged gradients are not the mean: {gradients['wrong']}")
    return "bit for bit" if want.ranks <= 2 else "within rounding (above two ranks in any order)"


def training_step(_: Fact, __: Want, facts: Facts) -> str:
    """Judge what must be equal on all ranks, or differ, and be finite."""
    gradients = {rank: fact["gradients"] for rank, fact in facts.items()}
    local = [each["local_sha256"] for each in gradients.values()]
    for rank, each in gradients.items():
        if each["gathered_sha256"] != local:
            fail(f"rank {rank} did not receive the other ranks' local gradients unchanged", rank)
    if len(set(local)) < len(local):
        fail("two ranks have the same local gradient, so they had the same data")
    for name, what in (
        ("parameters_before", "parameters before the step"),
        ("gradients", "averaged gradients"),
        ("step", "parameters after the step"),
    ):
        if len({fact[name]["sha256"] for fact in facts.values()}) > 1:
            fail(f"the ranks' {what} are not the same bytes")
    wanted = math.log(VOCABULARY)
    for rank, fact in facts.items():
        losses = (fact["step"]["loss_before"], fact["step"]["loss_after"])
        counts = {
            "gradients": gradients[rank]["non_finite"],
            "parameters": fact["step"]["non_finite"],
            "losses": sum(not math.isfinite(loss) for loss in losses),
        }
        if any(counts.values()):
            fail(f"rank {rank} has infinite or undefined numbers: {pairs(counts)}", rank)
        if not abs(losses[0] - wanted) <= LOSS_TOLERANCE:
            shown = f"rank {rank} starts at loss {losses[0]:.4f}, untrained it must be"
            fail(f"{shown} {wanted:.4f} +- {LOSS_TOLERANCE}", rank)
    return f"first loss {losses[0]:.3f}, ln V = {wanted:.3f}"


def loss_drop(facts: Facts) -> tuple[float, float]:
    """Return by how much the mean loss fell, and that divided by lr * |g|^2."""
    steps = [fact["step"] for fact in facts.values()]
    fell = sum(step["loss_before"] - step["loss_after"] for step in steps) / len(steps)
    predicted = steps[0]["lr"] * next(iter(facts.values()))["gradients"]["norm_squared"]
    return fell, fell / predicted if predicted else math.nan


def loss_fell(_: Fact, __: Want, facts: Facts) -> str:
    """Judge whether the loss fell by what the gradient predicts."""
    fell, ratio = loss_drop(facts)
    text = f"measured/predicted = {ratio:.4f}"
    if not abs(ratio - 1) <= DROP_TOLERANCE:
        fail(f"the loss fell by {fell:.6f}, {text}")
    return text
