"""S3: `torch.compile` with empty caches, and proof that what ran was a compiled kernel.

A compile that fails may fall back to eager execution with a warning that nobody reads, and the
result is right all the same. So the result proves nothing here; what does is that the profiler sees
none of the eager operations, and that a kernel was generated.
"""

from __future__ import annotations

import importlib
import os
import traceback
from typing import Any

from . import environment
from .check import Fact, Facts, Want, fail, skip, warn
from .options import REHEARSAL_CPU
from .rank import Rank, torch


def measure(it: Rank) -> None:
    """Record the fact "compile": a small function, eager and compiled, on the rank's device."""
    cache = it.directory / "compiled" / f"rank{it.rank}"
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    os.environ.update({name: str(cache / folder) for name, folder in caches.items()})
    with it.journal.measuring("compile") as value:
        # As torch reads them.
        disabled = [name for name in environment.OFF if os.environ.get(name) == "1"]
        if it.compiles:
            value.update({"disabled": disabled} if disabled else _measured(it.device))
        elif not disabled:
            importlib.import_module("torch._dynamo")  # DDP will; now this rank has nothing to do
    it.meet("compiled")


def _measured(device: torch.device) -> dict[str, Any]:
    from torch._inductor import metrics

    generator = torch.Generator().manual_seed(4)
    inputs = [torch.randn(64, 1024, generator=generator).to(device) for _ in range(2)]
    eager, wrong = _function(*inputs), None
    metrics.reset()
    # fullgraph: whatever cannot be compiled is an error and not a silent break of the graph
    compiling = torch.compile(_function, fullgraph=True)
    try:
        result = compiling(*inputs)
    except Exception as error:  # every layer of the compiler has its own
        traceback.print_exc()
        text = str(error).strip() or "without a message"
        return {"error": f"{type(error).__name__}: {text.splitlines()[0]}"[:300]}
    try:  # sums of 1024 products in single precision, whose order the compiler may choose
        torch.testing.assert_close(result, eager, rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        wrong = " ".join(str(error).split())
    return {
        "wrong": wrong,
        "kernels": int(metrics.generated_kernel_count),
        "eager": _operations(_function, inputs),
        "compiled": _operations(compiling, inputs),
    }


def _function(first: Any, second: Any) -> Any:
    """Pointwise work, then a reduction: what a compiler fuses into one kernel."""
    return (first * second + 1).abs().sum(dim=1)


def _operations(function: Any, inputs: list[Any]) -> list[str]:
    """Return the tensor operations that the profiler sees in one call."""
    from torch.autograd import profiler

    with profiler.profile(use_kineto=False) as profile:
        function(*inputs)
    return sorted({event.name for event in profile.function_events if "aten::" in event.name})


def compiled(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether compiling works, and a compiled kernel ran."""
    if not (found := mine["compile"]):  # on the CPU the first rank compiles for all
        return ""
    if disabled := found.get("disabled"):
        if not want.compile:
            skip("torch.compile is not used on this host, by data")
        names = " and ".join(disabled)
        warn(f"torch.compile was not tried: {names}=1 is set here and switches it off")
    if error := found.get("error"):
        # a host without a GPU and without a compiler can still train, uncompiled
        judge = warn if want.mode == REHEARSAL_CPU else fail
        judge(f"torch.compile does not work: {error}")
    if found["wrong"]:
        fail(f"what torch.compile made computes something else: {found['wrong']}")
    if found["compiled"] or not found["kernels"]:
        ran = ", ".join(found["compiled"]) or "nothing that can be seen"
        fail(f"torch.compile silently ran the function without a compiled kernel: it ran {ran}")
    if not found["eager"]:
        fail("the profiler saw no operations in eager mode either, so this shows nothing")
    return f"{found['kernels']} kernel(s) generated and run"
