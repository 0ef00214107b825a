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
from typing import Any

from .check import Fact, Facts, Want, fail
from .collectives import difference
from .rank import Rank, dist, torch

_VOCABULARY = 8192
_WIDTH, _LENGTH, _BATCH = 128, 64, 8
LOSS_DROP = 0.02
"""Small enough for the first order to hold within one per cent, large against fp32 rounding."""
DROP_TOLERANCE = 0.1


def _model() -> "torch.nn.Module":
    """Return a small transformer: every kind of layer a real one has, quick enough on a CPU."""
    nn: Any = torch.nn
    how = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    layers = [nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, **how) for _ in range(2)]
    head = nn.Linear(_WIDTH, _VOCABULARY, bias=False)
    model: torch.nn.Module = nn.Sequential(
        nn.Embedding(_VOCABULARY, _WIDTH), *layers, nn.LayerNorm(_WIDTH), head
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def measure(it: Rank) -> None:
    """Record parameters before and after one step, its losses, and what is wrong with its mean
    gradient.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    averaged: list[Any] = []
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

    with it.journal.measuring("step") as value:
        torch.manual_seed(1000 + it.rank)  # ranks differ, so equal ones prove DDP's broadcast
        model = torch.nn.parallel.DistributedDataParallel(_model().to(it.device))
        model.register_comm_hook(group, hook)
        parameters: list[Any] = [*model.parameters()]
        value["before"] = sha256(parameters)
        generator = torch.Generator().manual_seed(2000 + it.rank)  # each rank has its own data
        text = torch.randint(_VOCABULARY, (_BATCH, _LENGTH + 1), generator=generator).to(it.device)

        def loss() -> torch.Tensor:
            logits = model(text[:, :-1]).flatten(0, 1)
            return torch.nn.functional.cross_entropy(logits, text[:, 1:].flatten())

        it.journal.step("gradients")
        before: Any = loss()
        before.backward()
        exchanged, every = (sum(map(torch.numel, each)) for each in (averaged, parameters))
        value["wrong"] = f"{exchanged} of {every} elements were exchanged"
        if exchanged == every:
            value["local"] = sha256(local)
            value["wrong"] = _not_the_mean(averaged, torch.cat(local), it.world_size)
        value["gradient"] = sha256(each.grad for each in parameters)
        squares = (float(each.grad.double().square().sum()) for each in parameters)
        value["norm_squared"] = sum(squares)
        it.journal.step("optimizer")
        value["lr"] = LOSS_DROP / (value["norm_squared"] or math.inf)  # zero is for the judge
        torch.optim.SGD(parameters, lr=value["lr"]).step()
        with torch.no_grad():
            after = loss()
        value.update(loss_before=before.item(), loss_after=after.item(), after=sha256(parameters))


def _not_the_mean(averaged: list[Any], mine: "torch.Tensor", ranks: int) -> str | None:
    """Compare the averaged gradients with the mean of all ranks' own.

    For two ranks the mean is one addition, whose order does not matter: all bits must agree. For
    more, the order is the back end's: the bound is that of any order in single precision.
    """
    mean = torch.cat([each.grad.flatten() for each in averaged])
    everyone = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(everyone, mine)
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


# -- judged

_SAME = {
    "before": "parameters before the step",
    "gradient": "averaged gradients",
    "after": "parameters after the step",
}


def trained(_: Fact, want: Want, facts: Facts) -> str:
    """Judge the step: what must be equal on all ranks, or differ, and by how much the loss fell."""
    for rank, fact in facts.items():
        if wrong := fact["step"]["wrong"]:
            fail(f"rank {rank}: the averaged gradients are not the mean: {wrong}", rank)
    for key, what in _SAME.items():
        if len({fact["step"][key] for fact in facts.values()}) > 1:
            fail(f"the ranks' {what} are not the same bytes")
    if len({fact["step"]["local"] for fact in facts.values()}) < len(facts):
        fail("two ranks have the same local gradient, so they had the same data")
    steps = [fact["step"] for fact in facts.values()]
    fell = sum(step["loss_before"] - step["loss_after"] for step in steps) / len(steps)
    predicted = steps[0]["lr"] * steps[0]["norm_squared"]
    ratio = fell / predicted if predicted else math.nan
    if not abs(ratio - 1) <= DROP_TOLERANCE:  # also where it is not a number
        fail(f"the loss fell by {fell:.6f}, {ratio:.4f} of what the gradient predicts")
    exactly = "bit for bit" if want.ranks <= 2 else "within rounding"  # of sums in any order
    return f"gradients {exactly}, loss drop {ratio:.4f} of the predicted"
