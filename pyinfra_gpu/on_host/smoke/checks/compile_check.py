"""S3: `torch.compile` with empty caches, and proof that what ran was a compiled kernel.

A compile that fails may fall back to eager execution with a warning that nobody reads, and the
result is right all the same. So the result proves nothing here; what does is that the profiler
sees none of the eager operations, that a kernel was generated, and that its binary lies in a cache
directory that was empty before.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from ..options import REHEARSAL_CPU

_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
_SWITCH = "TORCHDYNAMO_DISABLE"
OFF = {_SWITCH: "1"}
"""The variable with which torch does not compile."""
_COMPILERS = {"cpu": ("CXX", "g++"), "cuda": ("CC", "gcc", "clang", "CXX", "g++")}
"""What inductor on the CPU, and Triton on a GPU, look for: a variable, then programs."""
_BINARIES = {"cpu": "*.so", "cuda": "*.cubin"}
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""For a sum of 1024 products in single precision, whose order the compiler may choose."""


def caches(directory: Path) -> dict[str, str]:
    """Return the variables with which compilers keep their caches below `directory` only."""
    return {name: str(directory / folder) for name, folder in _CACHES.items()}


def measure(device: str) -> dict[str, Any]:
    """Return the fact "compile": a small function, eager and compiled, on `device`."""
    fact = _prerequisites(device)
    if fact["disabled"]:
        return fact
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    generator = torch.Generator().manual_seed(4)
    inputs = [torch.randn(64, 1024, generator=generator).to(device) for _ in range(2)]
    eager = _function(*inputs)
    counters.clear()
    metrics.reset()
    # fullgraph: whatever cannot be compiled is an error and not a silent break of the graph
    compiled = torch.compile(_function, fullgraph=True)
    try:
        result = compiled(*inputs)
    except Exception as error:  # every layer of the compiler has its own
        traceback.print_exc()
        text = str(error).strip() or "without a message"
        fact["error"] = f"{type(error).__name__}: {text.splitlines()[0]}"[:300]
        return fact
    wrong = (result - eager).abs() > _RELATIVE * eager.abs() + _ABSOLUTE
    fact["elements"], fact["wrong"] = result.numel(), int(wrong.sum())
    if fact["wrong"] or not bool(torch.isfinite(result).all()):
        first = int((wrong | ~torch.isfinite(result)).nonzero()[0])
        fact["first"] = [first, float(result[first]), float(eager[first])]
    fact["graphs"] = int(counters["stats"]["unique_graphs"])
    fact["kernels"] = int(metrics.generated_kernel_count)
    fact["operations"] = {"eager": _operations(_function, inputs)}
    fact["operations"]["compiled"] = _operations(compiled, inputs)
    fact["binaries"] = _binaries(device)
    return fact


def _function(first: Any, second: Any) -> Any:
    """Pointwise work, then a reduction: what a compiler fuses into one kernel."""
    return (first * second + 1).abs().sum(dim=1)


def _prerequisites(device: str) -> dict[str, Any]:
    """Return what torch.compile needs of the host, which is looked at only if it fails."""
    wanted = (os.environ.get(name, name) for name in _COMPILERS[device.partition(":")[0]])
    found = next((path for name in wanted if (path := shutil.which(name))), None)
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return {
        "device": device,
        "disabled": os.environ.get(_SWITCH, "0") not in ("", "0"),
        "error": None,
        "compiler": found,
        "python_headers": headers.exists(),
    }


def _operations(function: Any, inputs: list[Any]) -> list[str]:
    """Return the tensor operations that the profiler sees in one call."""
    from torch.autograd import profiler

    with profiler.profile(use_kineto=False) as profile:
        function(*inputs)
    return sorted({event.name for event in profile.function_events if "aten::" in event.name})


def _binaries(device: str) -> list[str]:
    pattern = _BINARIES[device.partition(":")[0]]
    folders = [Path(os.environ[name]) for name in _CACHES if name in os.environ]
    return sorted(path.name for folder in folders for path in folder.rglob(pattern))


def _compile(facts: Facts, expected: Expected) -> Finding:
    for number, fact in facts.items():
        compiled = fact["compile"]
        if compiled["disabled"] and not expected.compile:
            return Finding(True, "off", "off", "not used on this host, by data", status="skip")
        if compiled["disabled"]:
            detail = f"torch.compile is switched off here: {_SWITCH} is set"
            return Finding(True, "off", "compiled", detail, number, status="warn")
        if compiled["error"]:
            return _failed(number, compiled, expected)
    return Finding(True, "compiled", "compiled")


def _failed(number: int, compiled: Mapping[str, Any], expected: Expected) -> Finding:
    """Say why; without a compiler only a host without a GPU can still train, uncompiled."""
    lacking = None
    if compiled["compiler"] is None:
        lacking = "no C++ compiler is installed (g++)"
    elif not compiled["python_headers"]:
        lacking = "Python's headers are not installed (Python.h)"
    why = f"{lacking}; " if lacking else ""
    detail = f"torch.compile does not work: {why}{compiled['error']}"
    if lacking and expected.mode == REHEARSAL_CPU:
        return Finding(True, compiled["error"], "compiled", detail, number, status="warn")
    return Finding(False, compiled["error"], "compiled", detail, number)


def _result(facts: Facts, _: Expected) -> Finding:
    for number, fact in facts.items():
        compiled = fact["compile"]
        if compiled["error"] or compiled["disabled"]:
            return Finding(True, None, None, "nothing was compiled", status="skip")
        if "first" in compiled:
            index, measured, wanted = compiled["first"]
            detail = (
                f"compiled, {compiled['wrong']} of {compiled['elements']} elements are wrong, "
                f"the first is element {index}: {measured!r} in place of {wanted!r}"
            )
            return Finding(False, compiled["wrong"], 0, detail, number)
    return Finding(True, 0, 0, f"{compiled['elements']} elements as in eager mode")


def _kernel(facts: Facts, _: Expected) -> Finding:
    for number, fact in facts.items():
        compiled = fact["compile"]
        if compiled["error"] or compiled["disabled"]:
            return Finding(True, None, None, "nothing was compiled", status="skip")
        ran_eager = compiled["operations"]["compiled"]
        counts = {key: compiled[key] for key in ("graphs", "kernels")}
        counts["binaries"] = len(compiled["binaries"])
        if ran_eager:
            what = f"it ran {', '.join(ran_eager)}"
        elif not all(counts.values()):
            what = ", ".join(f"{count} {key}" for key, count in counts.items())
        elif not compiled["operations"]["eager"]:
            what = "the profiler saw no operations in eager mode either, so this shows nothing"
        else:
            continue
        detail = f"torch.compile silently ran the function without a compiled kernel: {what}"
        return Finding(False, {**counts, "eager": ran_eager}, "a compiled kernel", detail, number)
    return Finding(True, counts, "a compiled kernel", f"{counts['kernels']} kernel(s) generated")


CHECKS: tuple[Check, ...] = (
    Check("S3.compile", ("compile",), _compile, each=True),
    Check("S3.kernel", ("compile",), _kernel, each=True),
    Check("S3.result", ("compile",), _result, each=True),
)
