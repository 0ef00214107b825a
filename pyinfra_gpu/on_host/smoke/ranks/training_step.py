"""One training step under DistributedDataParallel, each of its results recorded.

The learning rate is chosen so that the loss must fall by LOSS_DROP: to first order, a step of
size lr along the gradient g lowers the loss by lr * |g|^2. So a single figure covers the forward
pass, the backward pass, the averaging and the optimizer; a sum in place of a mean doubles it.
"""

# No `from __future__ import annotations`: DDP compares the hook's annotations with the types.

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..plan import BATCH, LOSS_DROP, SEQUENCE, VOCABULARY
from . import tensors
from .model import SmallGpt
from .rank import Rank


def measure(it: Rank) -> None:
    """Record initial parameters, gradients, losses and final parameters of one step."""
    journal, rank, device = it.journal, it.rank, it.device
    with journal.measuring("parameters_before") as value:
        model, gradients = _replicate(rank, device)
        value["sha256"] = tensors.sha256(model.parameters())
    tokens, targets = batch(rank, device)
    with journal.measuring("gradients") as value:
        loss_before = model(tokens, targets)
        loss_before.backward()
        value.update(gradients.compare(model, it.world_size))
    lr = LOSS_DROP / (value["norm_squared"] or float("inf"))  # zero is for the judge to see
    with journal.measuring("step") as value:
        torch.optim.SGD(model.parameters(), lr=lr).step()
        with torch.no_grad():
            loss_after = model(tokens, targets)
        value.update(lr=lr, loss_before=loss_before.item(), loss_after=loss_after.item())
        value["non_finite"] = sum(_non_finite(parameter) for parameter in model.parameters())
    with journal.measuring("parameters_after") as value:
        value["sha256"] = tensors.sha256(model.parameters())


class _LocalGradients:
    """Keeps what each bucket held before it was averaged."""

    def __init__(self) -> None:
        self.parameters: list[nn.Parameter] = []
        self.buckets: list[torch.Tensor] = []

    def hook(
        self,
        group: dist.ProcessGroup,
        bucket: dist.GradBucket,  # type: ignore[name-defined, unused-ignore]
    ) -> torch.futures.Future[torch.Tensor]:
        """Average as DDP does without a hook, after taking a copy."""
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        self.parameters.extend(bucket.parameters())
        self.buckets.append(bucket.buffer().clone())
        return default_hooks.allreduce_hook(group, bucket)

    def compare(self, model: nn.Module, world_size: int) -> dict[str, Any]:
        """Compare the averaged gradients with the mean of all ranks' local ones.

        Where nothing was exchanged, the gradients are still the local ones.
        """
        parameters = self.parameters or list(model.parameters())
        averaged = torch.cat([_gradient(parameter).flatten() for parameter in parameters])
        local = torch.cat(self.buckets) if self.buckets else averaged
        everyone = [torch.empty_like(local) for _ in range(world_size)]
        dist.all_gather(everyone, local)
        all_gradients = [_gradient(parameter) for parameter in model.parameters()]
        squares = [float(gradient.double().square().sum()) for gradient in all_gradients]
        return {
            "elements": sum(parameter.numel() for parameter in model.parameters()),
            "averaged": sum(parameter.numel() for parameter in self.parameters),
            "norm_squared": sum(squares),
            "non_finite": sum(_non_finite(gradient) for gradient in all_gradients),
            "local_sha256": tensors.sha256([local]),
            "gathered_sha256": [tensors.sha256([piece]) for piece in everyone],
            "sha256": tensors.sha256(all_gradients),
            **_wrong(averaged, everyone),
        }


def _replicate(rank: int, device: torch.device | str) -> tuple[nn.Module, _LocalGradients]:
    torch.manual_seed(1000 + rank)  # ranks differ, so equal parameters prove DDP's broadcast
    model = nn.parallel.DistributedDataParallel(SmallGpt().to(device))
    gradients = _LocalGradients()
    model.register_comm_hook(dist.group.WORLD, gradients.hook)
    return model, gradients


def batch(rank: int, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of `rank` and what follows each of them."""
    generator = torch.Generator().manual_seed(2000 + rank)
    text = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), generator=generator)
    return text[:, :-1].contiguous().to(device), text[:, 1:].contiguous().to(device)


def _wrong(averaged: torch.Tensor, everyone: list[torch.Tensor]) -> dict[str, Any]:
    """Count the elements that are not the mean.

    For two ranks the mean is one addition, whose order does not matter: all 32 bits must agree.
    For more, the order is the back end's: the bound is that of any order in single precision.
    """
    if len(everyone) == 2:
        expected = everyone[0] / 2 + everyone[1] / 2
        wrong = averaged.view(torch.int32) != expected.view(torch.int32)
    else:
        exact = torch.stack(everyone).double()
        bound = 2 * len(everyone) * 2.0**-24 * exact.abs().mean(0) + 2.0**-126
        expected = exact.mean(0)
        wrong = ~((averaged.double() - expected).abs() <= bound)
    result: dict[str, Any] = {"wrong": int(wrong.sum())}
    if result["wrong"]:
        first = int(wrong.nonzero()[0])
        result["first"] = [first, float(averaged[first]), float(expected[first])]
    return result


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _non_finite(tensor: torch.Tensor) -> int:
    return int((~torch.isfinite(tensor)).sum())
