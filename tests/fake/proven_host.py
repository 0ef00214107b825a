"""GPU hosts on which toolkit and libcuda were proven, and then something changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpu_host import DATA, GpuHost, bare_gpu_host

from pyinfra_gpu.stages.cuda import findings as cuda
from pyinfra_gpu.stages.finding import Finding
from pyinfra_gpu.stages.libcuda import findings as libcuda


def proofs(data: dict[str, object]) -> dict[str, str]:
    """What both proofs left on a host that was as this data says."""
    host = GpuHost(data=data)
    spec, record = host.spec(), host.record()
    return {
        f"{stage.__name__.split('.')[-2]}.proof": json.dumps(
            {
                "status": "pass",
                "state": stage.state(spec, record),
            }
        )
        for stage in (cuda, libcuda)
    }


def proven_host(
    *,
    data: dict[str, object] | None = None,
    reported: dict[str, Any] | None = None,
    **more: Any,
) -> GpuHost:
    """A healthy, proven host of this data; then its probe said `told` instead."""
    declared = {**DATA, **(data or {})}
    return GpuHost(data=declared, reported={**proofs(declared), **(reported or {})}, **more)


def changed(changes: Mapping[str, Any], *, bare: bool = False, **more: Any) -> GpuHost:
    """A proven host, but for `changes`, or a bare one.

    + changes: data by its key; what the probe says by FACT.NAME, a list or one value; the row of
      what stands at a path by that
    """
    kinds: dict[str, dict[str, Any]] = {"data": {}, "reported": {}, "entries": {}}
    for key, value in changes.items():
        kinds["entries" if key[0] == "/" else "reported" if "." in key else "data"][key] = value
    return (bare_gpu_host if bare else proven_host)(**kinds, **more)


def marked(found: Iterable[Finding]) -> str:
    """Name findings without their stage; ! marks what is left alone, ~ a note, * a restart."""
    marks = {"report": "!", "note": "~", "restart": "*", "repair": ""}
    return " ".join(f"{each.id.partition('.')[2]}{marks[each.effect]}" for each in found)
