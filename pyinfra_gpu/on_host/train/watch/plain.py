"""One moment of a run as a line, where no terminal is: for pipes, logs and people who asked."""

from __future__ import annotations

import time
from collections.abc import Iterator

from .. import words
from .machine import Gpu
from .screen import speeds, status
from .state import Seen


def line(seen: Seen) -> str:
    """Return what is known now, in one line."""
    known = seen.history.last
    parts = [time.strftime("%H:%M:%S", time.localtime(seen.now))]
    if seen.run.state != "running" or status(seen)[0] != "running":
        parts.append(status(seen)[0])
    parts += [seen.run.waits] if seen.run.waits else []
    parts += [part for part in (_step(known), _loss(seen), speeds(known)) if part]
    still = seen.over or seen.history.stalled(seen.now) is not None
    if not still and (left := seen.history.left()) is not None:
        parts.append(f"{words.duration(left)} left")
    if seen.checkpoint:
        parts.append(f"saved {seen.checkpoint[0]}")
    if "step" not in known and seen.last_line is not None:
        parts.append(f"no step seen; last line: {seen.last_line.text}")
    return " | ".join([*parts, *([] if seen.over else _machine(seen))])


def _machine(seen: Seen) -> Iterator[str]:
    if isinstance(seen.gpus, str):
        yield f"GPUs not known: {seen.gpus}"
    else:
        yield from map(_gpu, seen.gpus)
    if seen.memory:
        used, total = seen.memory.used_mib, seen.memory.total_mib
        yield f"RAM {words.gib(used)}/{words.gib(total)} GiB"


def _step(known: dict[str, float]) -> str:
    step, steps, epoch = known.get("step"), known.get("steps"), known.get("epoch")
    if step is None:
        return ""
    within = f"epoch {epoch:.0f} " if epoch is not None else ""
    part = f"/{steps:.0f} ({min(1.0, step / steps):.1%})" if steps else ""
    return f"{within}step {step:.0f}{part}"


def _loss(seen: Seen) -> str:
    if seen.history.not_finite:
        return f"loss {words.no_number(seen.history.not_finite[1])}"
    value = seen.history.last.get("loss")
    return "" if value is None else f"loss {words.loss(value)}"


def _gpu(gpu: Gpu) -> str:
    parts = [f"GPU {gpu.index}"]
    if gpu.used_percent is not None:
        parts.append(f"{gpu.used_percent:.0f} %")
    if gpu.memory_mib is not None and gpu.memory_total_mib is not None:
        parts.append(f"{words.gib(gpu.memory_mib)}/{words.gib(gpu.memory_total_mib)} GiB")
    if gpu.celsius is not None:
        parts.append(f"{gpu.celsius:.0f} °C")
    if gpu.watts is not None:
        parts.append(f"{gpu.watts:.0f} W")
    return " ".join([*parts, gpu.throttled]).rstrip()
