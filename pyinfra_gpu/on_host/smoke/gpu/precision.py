"""The precision ladder: which number formats this GPU really computes with, one process each.

A capability number is no evidence: kernels for a format may be missing in a library that says it
supports the GPU. Each format is therefore tried with a real operation, in a process of its own,
since an error of CUDA spoils everything its process does afterwards.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import processes
from .formats import FORMATS, MissingError

NATIVE = "native"
UNSUPPORTED = "unsupported (expected)"
FAILED = "failed"
NOT_RUN = "not run"

TOLERANCE = 2.0**-7
"""On |error| / (|A| |B|): a result in bf16 is rounded to 2^-9, and tensor cores for 8-bit floats
add up with some 13 bits; a wrong scale or a wrong block is off by tens of per cent."""

_MARK = "precision: "
_LINES = 5

_SINCE = {"bf16": (8, 0), "fp8": (8, 9), "mxfp8": (10, 0), "nvfp4": (10, 0), "mxfp4": (10, 0)}
"""The first compute capability with tensor cores for the format (CUDA programming guide)."""
_ONLY_MAJOR = {"mxfp4": 10}
"""torch runs MXFP4 on B200 and B300 alone (ScaledBlas.cpp, since 2.10)."""
_REFUSAL = re.compile(
    r"MXFP4 scaling (?:only )?supported|only supported on CUDA devices with compute capability"
)
"""What torch says where the format is not for this GPU or this build of torch."""
_NO_KERNEL = (
    r"no kernel image|CUBLAS_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH)|operation not supported"
)
_FAULT = re.compile(rf"CUDA error: (?!{_NO_KERNEL})|illegal memory access|launch failure")
"""What is wrong on any GPU; that a library has no kernel for this one is none of it. cuBLAS says so
by NOT_SUPPORTED, as of MXFP8 and NVFP4 on a GPU older than 10.0."""


def main(name: str, device: int) -> int:
    """Try format `name` on the GPU `device`; print the outcome as one line; for the child."""
    import torch

    from . import formats

    place = torch.device("cuda", device)
    outcome: dict[str, Any] = {"format": name, "torch": str(torch.__version__)}
    try:
        outcome["capability"] = list(torch.cuda.get_device_capability(place))
        torch.cuda.set_device(place)
        outcome |= formats.probe(torch, place, name)
    except MissingError as error:
        outcome["missing"] = str(error)
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"[:1000]
    print(_MARK + json.dumps(outcome), flush=True)
    return 0


def ladder(
    command: Sequence[str],
    environment: Mapping[str, str],
    device: int,
    seconds_each: float = 20.0,
    limit: float = 60.0,
) -> dict[str, Any]:
    """Return the fact `precision`: each format's status, and the best one that works.

    + command: starts this program; "--gpu-precision FORMAT --device N" is added to it
    + limit: seconds for all; formats that are not reached are "not run"
    """
    until = time.monotonic() + limit
    formats: dict[str, dict[str, Any]] = {}
    capability: list[int] | None = None
    for name in FORMATS:
        left = min(seconds_each, until - time.monotonic())
        if left <= 0:
            formats[name] = {"status": NOT_RUN, "reason": "no time was left"}
            continue
        arguments = ["--gpu-precision", name, "--device", str(device)]
        began = time.monotonic()
        outcome = _attempt([*command, *arguments], environment, left)
        capability = outcome.get("capability") or capability
        seconds = round(time.monotonic() - began, 2)
        formats[name] = {**judged(name, outcome, capability), "seconds": seconds}
    return {"device": device, "capability": capability, "formats": formats, "best": best(formats)}


def _attempt(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    """Run one child; return what it printed, or under "crash" how it ended without a word."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
            start_new_session=True,
            preexec_fn=processes.die_with_parent,  # safe: the launcher has one thread
        )
    except subprocess.TimeoutExpired:
        return {"crash": f"did not end within {seconds:.0f} s"}
    except OSError as error:
        return {"crash": f"could not be started: {error.strerror}"}
    return outcome(done.returncode, done.stdout.decode(errors="replace"))


def outcome(code: int, text: str) -> dict[str, Any]:
    """Return the outcome in what a child printed, "crash" if it ended before it printed one."""
    lines = text.splitlines()
    for line in reversed(lines):
        if line.startswith(_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return found
    last = " | ".join(line.strip() for line in lines[-_LINES:] if line.strip())
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return {"crash": f"ended with {how}: {last or 'without a word'}"}


def judged(
    name: str, outcome: Mapping[str, Any], capability: Sequence[int] | None
) -> dict[str, Any]:
    """Return status, reason and figures of one format.

    Wrong numbers are a failure even where the format is not expected to work: it was offered. An
    error is expected only where GPU or torch is known not to have the format; without the GPU's
    capability nothing is known, and nothing is excused.
    """
    figures = {key: outcome[key] for key in ("ratio", "tflops") if key in outcome}
    if "ratio" in outcome:
        wrong = outcome["non_finite"] or not outcome["ratio"] <= TOLERANCE
        reason = "wrong numbers" if wrong else ""
        return {"status": FAILED if wrong else NATIVE, "reason": reason, **figures}
    if "missing" in outcome:
        return {"status": UNSUPPORTED, "reason": outcome["missing"]}
    if "crash" in outcome:
        return {"status": FAILED, "reason": outcome["crash"]}
    error = str(outcome["error"])
    refused = _REFUSAL.search(error) is not None
    without = capability is not None and not supports(name, capability)
    expected = not _FAULT.search(error) and (refused or without)
    return {"status": UNSUPPORTED if expected else FAILED, "reason": error.splitlines()[0][:300]}


def supports(name: str, capability: Sequence[int]) -> bool:
    """Return whether a GPU of `capability` has the format, as torch can use it."""
    if name in _ONLY_MAJOR and capability[0] != _ONLY_MAJOR[name]:
        return False
    return tuple(capability) >= _SINCE[name]


def best(formats: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the highest format that is native, what to fall back to for those above it."""
    native = [name for name in FORMATS if formats[name]["status"] == NATIVE]
    return native[-1] if native else None
