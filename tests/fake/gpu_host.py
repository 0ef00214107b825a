"""A FakeHost with two GPUs on which everything is as declared, except for what a test changes."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fake_host import FakeHost, FakeRun
from pyinfra.api.deploy import add_deploy
from pyinfra.context import ctx_host, ctx_state

from pyinfra_gpu import spec
from pyinfra_gpu.drift.driver import BLACKLIST
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files

UPGRADES = "/usr/bin/unattended-upgrade"
KERNEL = "6.1.0-30-amd64"
VERSION = "580.95.05"
URL = "http://mirror.example/nvidia/debian12/x86_64"
LIB = "/usr/lib/x86_64-linux-gnu"
# A version 4 primary key, as far as a fingerprint goes: version, time, algorithm, material.
_KEY_BODY = bytes([4, 0x6B, 1, 0x7D, 0x0F, 22]) + b"made up for tests"
KEYRING = bytes([0xC6, len(_KEY_BODY)]) + _KEY_BODY
FINGERPRINT = fingerprints(KEYRING)[0]  # type: ignore[index]
DATA: dict[str, object] = {
    "stack": "r580-cu130",
    "gpu_model": "RTX 5090",
    "gpu_count": 2,
    "driver_repository_url": "http://mirror.example/nvidia/{distro}/{arch}",
    "driver_key_fingerprint": FINGERPRINT,
    "driver_keyring_sha256": "ab" * 32,
    "smoke": "skip",
}
DRIVER_PACKAGES = (
    *("firmware-nvidia-gsp", "libcuda1", "libnvidia-ml1", "nvidia-driver-cuda"),
    *("nvidia-kernel-open-dkms", "nvidia-modprobe", "nvidia-persistenced", "nvidia-smi"),
)
WINDOWS = "0x00000000de000000-0x00000000deffffff 0x0000006000000000-0x00000067ffffffff"
_PLAIN: dict[str, str | None] = {
    "nvidia.asked": "1",
    "system.secure_boot": "0",
    "driver.loaded": VERSION,
    "driver.version_line": (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build"
    ),
    "driver.on_disk": VERSION,
    "driver.license": "Dual MIT/GPL",
    "driver.module": None,
    "driver.nova": "0",
    "driver.libcuda": f"{LIB}/libcuda.so.{VERSION}",
    "driver.libml": f"{LIB}/libnvidia-ml.so.{VERSION}",
    "driver.persistenced": "active",
    "driver.persistenced_enabled": "enabled",
    "driver.runfile": "0",
    "driver.mok": None,
    "kernel.initramfs": "fresh",
    "power.reboots": None,
    "storage.usr": "/dev/sda1 264212084 25749380 230641532 11% /",
    "storage.var": "/dev/sda1 264212084 25749380 230641532 11% /",
    "cuda.nvcc": "Cuda compilation tools, release 13.0, V13.0.88",
    "cuda.link": "/usr/local/cuda-13.0",
    "cuda.alternative": "/usr/local/cuda-13.0",
    "cuda.nvcc_on_path": None,
    "cuda.gcc": "12.2.0",
    "cuda.gxx": "1",
    "cuda.compiler": None,
    "cuda.proof": None,
    "libcuda.proof": None,
}
LISTS: dict[str, list[str]] = {
    "gpus.device": [f"0000:0{n}:00.0 0x10de 0x2b85 0x030000 nvidia {WINDOWS}" for n in (1, 2)],
    "driver.user": [],
    "kernel.installed": [KERNEL],
    "kernel.module": [],
    "kernel.headers": [f"{KERNEL} 1"],
    "nvidia.package": [
        *(f"{name} {VERSION}-1 1 1" for name in DRIVER_PACKAGES),
        "cuda-toolkit-13-0 13.0.3-1 0 1",
        "cuda-nvcc-13-0 13.0.88-1 0 1",
    ],
    "nvidia.source_line": [
        f"{files.SOURCES}:deb [signed-by={system_files.KEYRING}] {URL}/ /",
    ],
    "nvidia.history": [],
    "cuda.toolkit": ["13.0"],
    "cuda.missing": [],
    "libcuda.cache": [
        f"{name} => {LIB}/{name} => {LIB}/{base}.{VERSION}"
        for name, base in (
            ("libnvidia-ml.so.1", "libnvidia-ml.so"),
            ("libcuda.so.1", "libcuda.so"),
            ("libcuda.so", "libcuda.so"),
        )
    ],
    "libcuda.link": [
        f"link {LIB}/libcuda.so => libcuda.so.1 => {LIB}/libcuda.so.{VERSION}",
        f"link {LIB}/libcuda.so.1 => libcuda.so.{VERSION} => {LIB}/libcuda.so.{VERSION}",
        f"link {LIB}/libnvidia-ml.so.1 => libnvidia-ml.so.{VERSION}"
        f" => {LIB}/libnvidia-ml.so.{VERSION}",
        "absent /usr/local/cuda-13.0/lib64/libcuda.so => - => -",
    ],
    "libcuda.file": [f"{LIB}/libcuda.so.{VERSION}"],
    "libcuda.loader_path": [],
    "power.session": [],
    "power.inhibitor": [],
    "torch.version_line": ["__version__ = '2.14.1+cu130'", "cuda = '13.0'", "git_version = 'c'"],
    "torch.distribution": ["torch-2.14.1.dist-info"],
}


def logged(
    name: str, new: str, *, when: str = "2026-11-21T06:12:03", command: str = UPGRADES
) -> dict[str, Any]:
    """A change of a package as apt's log tells it."""
    told = {"when": when, "action": "Upgrade", "by": None, "command": command}
    return {**told, "name": name, "old": "1.0-1", "new": new}


def system_texts(wanted: spec.HostSpec) -> dict[str, bytes]:
    """Our files outside the prefix, as they should be."""
    driver = wanted.driver
    return {
        system_files.KEYRING: KEYRING,
        files.SOURCES: files.sources(URL).encode(),
        files.PREFERENCES: files.preferences(
            driver.branch or 0, driver.version, _toolkit(wanted)
        ).encode(),
        files.UNATTENDED: files.unattended().encode(),
        system_files.MODPROBE: (system_files.HEADER + BLACKLIST).encode(),
    }


def _toolkit(wanted: spec.HostSpec) -> tuple[str, str] | None:
    return ("cuda-toolkit-13-0", wanted.cuda.version) if wanted.cuda.version else None


@dataclass
class GpuHost(FakeHost):
    """As FakeHost. Further changes:

    + texts: path -> content of a file of ours outside the prefix, None: it is not there
    + keyring: what apt's keyring of ours holds, None: there is no such file
    + responses: part of a command -> what the host answers to it (pyinfra's `fake_responses`)
    """

    data: dict[str, object] = field(default_factory=lambda: dict(DATA))
    texts: dict[str, bytes | None] = field(default_factory=dict)
    keyring: bytes | None = KEYRING
    responses: dict[str, Any] = field(default_factory=dict)

    def _lines(
        self, wanted: spec.HostSpec, *, stamped: bool, noted: Mapping[str, str] | None = None
    ) -> list[str]:
        changed_plain, changed_lists = self.plain, self.lists
        self.plain = {**_PLAIN, **changed_plain}
        self.lists = {"kernel.source": self._sources(), **LISTS, **changed_lists}
        try:
            self.plain["nvidia.keyring"] = None if self.keyring is None else self.keyring.hex()
            return super()._lines(wanted, stamped=stamped, noted=noted)
        finally:
            self.plain, self.lists = changed_plain, changed_lists

    def _sources(self) -> list[str]:
        """What DKMS would have of the installed packages, whatever their versions."""
        rows = self.lists.get("nvidia.package", LISTS["nvidia.package"])
        versions = [row.split()[1].partition(":")[2] or row.split()[1] for row in rows]
        return sorted({each.partition("-")[0] for each in versions})

    def _layout(self, wanted: spec.HostSpec) -> dict[str, list[str]]:
        found = super()._layout(wanted)
        texts: dict[str, bytes | None] = {**system_texts(wanted)}
        texts |= self.texts
        for path, text in texts.items():
            if path in self.entries:
                continue
            found["layout.asked"].append(path)
            if text is None:
                found["layout.absent"].append(path)
                continue
            found["layout.stat"].append(f"81a4 0 root {len(text)} {path}")
            found["layout.sha256"].append(f"{hashlib.sha256(text).hexdigest()}  {path}")
        return found


def bare_gpu_host(**changes: Any) -> GpuHost:
    """A GPU host as it comes: nouveau has the cards, nothing of NVIDIA's is installed."""
    plain: dict[str, str | None] = {
        **dict.fromkeys(
            (
                *("driver.loaded", "driver.version_line", "driver.on_disk", "driver.license"),
                *("driver.libcuda", "driver.libml", "driver.persistenced"),
                *("driver.persistenced_enabled", "cuda.nvcc", "cuda.link", "cuda.alternative"),
                "cuda.gcc",
            )
        ),
        "driver.nouveau": "1",
        "cuda.gxx": "0",
    }
    lists: dict[str, list[str]] = {
        **{
            key: []
            for key in ("nvidia.package", "nvidia.source_line", "cuda.toolkit", "libcuda.cache")
        },
        "kernel.headers": [f"{KERNEL} 0"],
        "cuda.missing": ["bin/nvcc"],
        "libcuda.link": [f"absent {LIB}/libcuda.so => - => -"],
        "libcuda.file": [],
    }
    texts: dict[str, bytes | None] = dict.fromkeys((*system_files.ALL, *files.ALL))
    made = {"plain": plain, "lists": lists, "texts": texts, "keyring": None, "bare": True}
    for key, value in changes.items():
        made[key] = {**made[key], **value} if isinstance(made.get(key), dict) else value
    return GpuHost(**made)


def unwrapped(command: str) -> list[list[str]]:
    """Return the words of a command that starts a smoke test, and of each command within it.

    The shell that pyinfra puts around all of it is left out, and the shells in between.
    """
    found, inner = [], [command]
    while inner:
        words = shlex.split(inner[0])
        found.append(words)
        inner = [each for each in words if "smoke_test.pyz" in each and " " in each]
    return [words for words in found if words[:2] != ["sh", "-c"] or len(words) > 3]


class GpuRun(FakeRun):
    """FakeRun of the given stages alone, on hosts that answer what they were told to."""

    def __init__(self, *hosts: FakeHost, tasks: tuple[Callable[..., Any], ...]) -> None:
        self.tasks = tasks
        super().__init__(*hosts)

    @staticmethod
    def _data(host: FakeHost) -> dict[str, Any]:
        data = FakeRun._data(host)
        told = host.responses if isinstance(host, GpuHost) else {}
        data["fake_responses"] = {**data["fake_responses"], **told}
        return data

    def prepare(self) -> GpuRun:
        for host in list(self.state.inventory):
            wanted = declared(host)
            for task in self.tasks:
                with ctx_state.use(self.state), ctx_host.use(host):
                    add_deploy(self.state, task, wanted, host=host)
        return self
