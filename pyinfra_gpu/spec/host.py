"""Everything one host should be, and every data key that declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.cuda import CudaSpec, LibcudaSpec
from pyinfra_gpu.spec.driver import DriverSpec
from pyinfra_gpu.spec.key import Key, computed, key, keys_of, part
from pyinfra_gpu.spec.packages import PackagesSpec
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.preflight import GpuSpec, PreflightSpec
from pyinfra_gpu.spec.pytorch import PytorchSpec
from pyinfra_gpu.spec.smoke import SmokeSpec
from pyinfra_gpu.spec.training import EnvironmentSpec, TrainingSpec, is_declared
from pyinfra_gpu.stacks import catalogue

Accelerator = Literal["nvidia", "cpu"]
Privilege = Literal["sudo", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSpec:
    """Everything one host should be."""

    host: str = computed(lambda given: given.host)
    stack: str = key(
        v.one_of(lambda: catalogue().stacks, "a stack"),
        default=catalogue().default_stack,
        allowed="the name of a stack",
        example="cpu-torch2.13",
        help="versions that fit together; every other version key overrides one of them",
    )
    accelerator: Accelerator = computed(lambda given: given.stack.accelerator)
    rehearsal: bool = key(
        v.boolean,
        default=False,
        example=True,
        help="the host is thrown away after use: label every result so",
    )
    paths: Paths = part(Paths, stage="general", prefix="")
    owner: str | None = key(
        v.matching(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", "is not a user name"),
        default=None,
        allowed="a user name, or None for the login user",
        example="trainer",
        help="the user who runs torch and owns what it needs; the rest below prefix is root's",
        synonyms=("user",),
    )
    privilege: Privilege = key(
        v.choice("sudo", "none"),
        default="sudo",
        example="none",
        help="'none' writes nothing outside prefix and installs no system package",
        synonyms=("sudo",),
    )
    look_timeout_s: int = key(
        v.integer(10, 3600),
        default=60,
        example=180,
        help="seconds a host has to be connected to and looked at; after that it is given up",
        synonyms=("timeout_s", "look_wait_s"),
    )
    gpu: GpuSpec = part(GpuSpec, stage="preflight", prefix="gpu_")
    preflight: PreflightSpec = part(PreflightSpec, stage="preflight")
    driver: DriverSpec = part(DriverSpec, stage="driver")
    packages: PackagesSpec = part(PackagesSpec, stage="packages")
    cuda: CudaSpec = part(CudaSpec, stage="cuda")
    libcuda: LibcudaSpec = part(LibcudaSpec, stage="libcuda")
    pytorch: PytorchSpec = part(PytorchSpec, stage="pytorch")
    environment: EnvironmentSpec = part(EnvironmentSpec, stage="environment")
    training: TrainingSpec | None = part(TrainingSpec, stage="training", when=is_declared)
    smoke: SmokeSpec = part(SmokeSpec, stage="smoke")


KEYS: Mapping[str, Key] = {each.name: each for each in keys_of(HostSpec, "general")}
"""Every data key by its name, in the order of the documentation."""

STAGES = tuple(dict.fromkeys(each.stage for each in KEYS.values()))
"""The stages that have keys, in the order of a run; "general" is what all of them read."""
