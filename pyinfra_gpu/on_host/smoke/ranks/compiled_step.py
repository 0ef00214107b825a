"""The training step once more, compiled and with bfloat16 where autocast puts it: as people train.

Its loss must be that of the same model in eager single precision within what bfloat16 allows.
"""

from __future__ import annotations

import importlib
from datetime import timedelta

import torch
from torch.distributed import distributed_c10d

from ..options import REHEARSAL_CPU
from .model import SmallGpt
from .rank import Rank
from .training_step import batch

_LAYERS = {REHEARSAL_CPU: 0}
"""Of the compiled model; each is compiled twice, forward and backward. A C++ compiler takes 10 s
for one; without any there are still the embeddings, the norm, the head and the loss."""


def measure(it: Rank) -> None:
    """Record the fact "compiled_step"; where torch.compile does not work here, only that."""
    with it.journal.measuring("compiled_step") as value:
        value["compiled"] = it.options.compiled
        if not it.options.compiled:
            return
        torch.manual_seed(3000)
        model = SmallGpt(_LAYERS.get(it.options.mode, 2)).to(it.device)
        tokens, targets = batch(it.rank, it.device)
        with torch.no_grad():
            value["eager_loss"] = float(model(tokens, targets))
        # Every rank loads the compiler. Then one fills the cache from which the others read: all
        # at once they would fight for the cores to compile the same.
        importlib.import_module("torch._inductor.compile_fx")
        _meet(it, "loaded")
        if it.rank == 0:
            value.update(_step(model, tokens, targets))
        _meet(it, "first")
        if it.rank != 0:
            value.update(_step(model, tokens, targets))
        _meet(it, "all")


def _meet(it: Rank, name: str) -> None:
    """Wait for the other ranks at the store.

    A collective would be NCCL's, whose watchdog ends a rank that waits in one for longer than a
    minute: a compiler on slow cores takes that. A hang is the launcher's to end here, too.
    """
    store = distributed_c10d._get_default_store()
    here = f"compiled_step/{name}"
    if store.add(here, 1) == it.world_size:
        store.set(f"{here}/complete", "")
    store.wait([f"{here}/complete"], timedelta(seconds=2 * it.options.deadline))


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
