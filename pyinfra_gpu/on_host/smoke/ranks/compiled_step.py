"""The training step once more, compiled and with bfloat16 where autocast puts it: as people train.

Its loss must be that of the same model in eager single precision within what bfloat16 allows.
"""

from __future__ import annotations

import importlib

import torch
import torch.distributed as dist

from ..journal import Writer
from .model import SmallGpt
from .training_step import batch


def measure(
    journal: Writer, rank: int, device: torch.device | str, compiled: bool, layers: int
) -> None:
    """Record the fact "compiled_step".

    + compiled: whether torch.compile works here; if not, that is all that is recorded
    + layers: of the model; every one more is compiled twice, forward and backward
    """
    with journal.measuring("compiled_step") as value:
        value["compiled"] = compiled
        if not compiled:
            return
        torch.manual_seed(3000)
        model = SmallGpt(layers).to(device)
        tokens, targets = batch(rank, device)
        with torch.no_grad():
            value["eager_loss"] = float(model(tokens, targets))
        # Every rank loads the compiler. Then one fills the cache from which the others read: all
        # at once they would fight for the cores to compile the same.
        importlib.import_module("torch._inductor.compile_fx")
        dist.barrier()
        if rank == 0:
            value.update(_step(model, tokens, targets))
        dist.barrier()
        if rank != 0:
            value.update(_step(model, tokens, targets))
        dist.barrier()


def _step(model: SmallGpt, tokens: torch.Tensor, targets: torch.Tensor) -> dict[str, float | int]:
    """Return the loss, and how many gradient elements are not finite."""
    compiled = torch.compile(model, fullgraph=True)
    with torch.autocast(tokens.device.type, torch.bfloat16):
        loss = compiled(tokens, targets)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    missing = sum(gradient is None for gradient in gradients)
    bad = sum(int((~torch.isfinite(each)).sum()) for each in gradients if each is not None)
    return {"loss": float(loss.detach()), "missing": missing, "non_finite": bad}
