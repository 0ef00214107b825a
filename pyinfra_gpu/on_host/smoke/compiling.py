"""S3: `torch.compile` with empty caches, and proof that what ran was a compiled kernel.

A compile that fails may fall back to eager execution with a warning that nobody reads, and the
result is right all the same. So the result proves nothing here; what does is that the profiler
sees none of the eager operations, that a kernel was generated, and that its binary lies in a cache
directory that was empty before.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import environment
from .check import Fact, Facts, Want, fail, skip, warn
from .lazy import torch
from .options import REHEARSAL_CPU

if TYPE_CHECKING:
    from .worker import Rank

_COMPILERS = {"cpu": ("CXX", "g++"), "cuda": ("CC", "gcc", "clang", "CXX", "g++")}
"""What inductor on the CPU, and Triton on a GPU, look for: a variable, then programs."""
_BINARIES = {"cpu": "*.so", "cuda": "*.cubin"}


def measure(it: Rank) -> None:
    """Record the fact "compile": a small function, eager and compiled, on the rank's device."""
    cache = it.directory / "compiled" / f"rank{it.rank}"
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    os.environ.update({name: str(cache / folder) for name, folder in caches.items()})
    with it.journal.measuring("compile") as value:
        if it.compiles:
            value.update(_measured(it.device, cache))
        elif not _disabled():
            importlib.import_module("torch._dynamo")  # DDP will; now this rank has nothing to do
    it.meet("compiled")


def _disabled() -> list[str]:
    """Return the variables that switch torch.compile off, as torch reads them."""
    return [name for name in environment.OFF if os.environ.get(name) == "1"]


def _lacking(kind: str) -> str:
    """Return what this host lacks that compilers need."""
    names = (os.environ.get(name, name) for name in _COMPILERS[kind])
    if not any(shutil.which(name) for name in names):
        return "no C++ compiler is installed (g++); "
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if headers.exists() else "Python's headers are not installed (Python.h); "


def _measured(device: torch.device, cache: Path) -> dict[str, Any]:
    kind = device.type
    fact: dict[str, Any] = {"disabled": _disabled(), "lacking": _lacking(kind)}
    fact |= {"error": None, "wrong": None}
    if fact["disabled"]:
        return fact
    from torch._inductor import metrics

    generator = torch.Generator().manual_seed(4)
    inputs = [torch.randn(64, 1024, generator=generator).to(device) for _ in range(2)]
    eager = _function(*inputs)
    metrics.reset()
    # fullgraph: whatever cannot be compiled is an error and not a silent break of the graph
    compiling = torch.compile(_function, fullgraph=True)
    try:
        result = compiling(*inputs)
    except Exception as error:  # every layer of the compiler has its own
        traceback.print_exc()
        text = str(error).strip() or "without a message"
        fact["error"] = f"{type(error).__name__}: {text.splitlines()[0]}"[:300]
        return fact
    try:  # sums of 1024 products in single precision, whose order the compiler may choose
        torch.testing.assert_close(result, eager, rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        fact["wrong"] = " ".join(str(error).split())
    fact["kernels"] = int(metrics.generated_kernel_count)
    fact["eager"] = _operations(_function, inputs)
    fact["compiled"] = _operations(compiling, inputs)
    fact["binaries"] = len([*cache.rglob(_BINARIES[kind])])
    return fact


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
    if found["disabled"] and not want.compile:
        skip("torch.compile is not used on this host, by data")
    if found["disabled"]:
        names = " and ".join(found["disabled"])
        warn(f"torch.compile was not tried: {names}=1 is set here and switches it off")
    if error := found["error"]:
        # without a compiler a host without a GPU can still train, uncompiled
        judge = warn if found["lacking"] and want.mode == REHEARSAL_CPU else fail
        judge(f"torch.compile does not work: {found['lacking']}{error}")
    if found["wrong"]:
        fail(f"what torch.compile made computes something else: {found['wrong']}")
    silently = "torch.compile silently ran the function without a compiled kernel"
    if found["compiled"]:
        fail(f"{silently}: it ran {', '.join(found['compiled'])}")
    if not (found["kernels"] and found["binaries"]):
        fail(f"{silently}: {found['kernels']} kernels, {found['binaries']} binaries")
    if not found["eager"]:
        fail("the profiler saw no operations in eager mode either, so this shows nothing")
    return f"{found['kernels']} kernel(s) generated and run"
