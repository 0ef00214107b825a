"""What must be so before anything is written: GPUs, disk, memory, a free package manager."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import Given, computed, from_stack, key
from pyinfra_gpu.stacks import catalogue


def _capability(given: Given) -> str | None:
    model = given["gpu_model"]
    return None if model is None else given.known.gpus[model].compute_capability


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSpec:
    """The GPUs the host must have; `compute_capability` ("12.0") is None unless the model is
    declared.
    """

    model: str | None = key(
        v.one_of(lambda: catalogue().gpus, "a GPU this project knows"),
        default=None,
        allowed="the name of a GPU in stacks.yaml, or None for no check",
        example="RTX 5090",
        help="the model every GPU of the host must be",
        synonyms=("gpu", "gpu_name"),
    )
    count: int = key(
        v.integer(0, 16),
        default=from_stack(lambda given: 0 if given.stack.accelerator == "cpu" else 2),
        allowed="a whole number from 0 to 16, 0 only with a cpu stack",
        example=4,
        help="how many GPUs the host must have; 2 on nvidia stacks, 0 on cpu stacks",
        synonyms=("gpus", "num_gpus"),
    )
    compute_capability: str | None = computed(_capability)


def _minimum_disk(given: Given) -> float:
    """Return the stack's, and what a tree and its objects take on a host that may build torch."""
    builder = given["pytorch_builder"] in (None, given.host)
    builds = given["pytorch_source"] == "source" and builder and not given["rehearsal"]
    return given.stack.minimum_disk_gib + (given.known.build_disk_gib if builds else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightSpec:
    """What must be there before anything is written."""

    min_disk_gib: float = key(
        v.number(0, 100_000),
        default=from_stack(_minimum_disk),
        example=40,
        help="free GiB needed at prefix where torch is not installed yet; more where it is built",
    )
    min_ram_gib: float = key(
        v.number(0, 100_000),
        default=from_stack(lambda given: given.stack.minimum_ram_gib),
        example=64,
        help="GiB of memory the host must have",
    )
    apt_wait_s: int = key(
        v.integer(0, 3600),
        default=120,
        example=600,
        help="seconds to wait while another program uses apt or dpkg",
    )
