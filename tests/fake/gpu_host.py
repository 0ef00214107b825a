"""A FakeHost with two GPUs on which everything is as declared, except for what a test changes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fake_host import BARE, FakeHost, FakeRun, digest, entry
from pyinfra.api.deploy import add_deploy
from pyinfra.context import ctx_host, ctx_state

from pyinfra_gpu import spec
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.on_host.probe import apt
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.stages.driver.findings import BLACKLIST

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
FACTS: dict[str, Any] = {
    "nvidia": True,
    "system.secure_boot": False,
    "gpus.devices": [
        {
            "address": f"0000:0{n}:00.0",
            "pci_id": "10de:2b85",
            "driver": "nvidia",
            "bar1": True,
        }
        for n in (1, 2)
    ],
    "driver.loaded": VERSION,
    "driver.open_modules": True,
    "driver.on_disk": VERSION,
    "driver.libcuda": f"{LIB}/libcuda.so.{VERSION}",
    "driver.libml": f"{LIB}/libnvidia-ml.so.{VERSION}",
    "driver.users": [],
    "driver.persistenced": "active",
    "driver.persistenced_enabled": True,
    "driver.runfile": False,
    "driver.mok": None,
    "kernel.installed": [KERNEL],
    "kernel.modules": {},
    "kernel.headers": {KERNEL: True},
    "kernel.initramfs": "fresh",
    "power.reboots": None,
    "power.sessions": [],
    "power.inhibitors": [],
    "storage.usr_mib": 225235,
    "storage.var_mib": 225235,
    "nvidia.packages": [
        *(f"{name} {VERSION}-1 1 1" for name in DRIVER_PACKAGES),
        "cuda-toolkit-13-0 13.0.3-1 0 1",
        "cuda-nvcc-13-0 13.0.88-1 0 1",
    ],
    "nvidia.history": [],
    "cuda.toolkits": ["13.0"],
    "cuda.missing": [],
    "cuda.nvcc": "13.0",
    "cuda.link": "/usr/local/cuda-13.0",
    "cuda.alternative": "/usr/local/cuda-13.0",
    "cuda.nvcc_on_path": None,
    "cuda.gcc": "12.2.0",
    "cuda.compiler": None,
    "cuda.proof": None,
    "libcuda.cache": [
        f"{name} {LIB}/{name} {LIB}/{base}.{VERSION}"
        for name, base in (
            ("libnvidia-ml.so.1", "libnvidia-ml.so"),
            ("libcuda.so.1", "libcuda.so"),
            ("libcuda.so", "libcuda.so"),
        )
    ],
    "libcuda.links": [
        f"link {LIB}/libcuda.so libcuda.so.1 {LIB}/libcuda.so.{VERSION}",
        f"link {LIB}/libcuda.so.1 libcuda.so.{VERSION} {LIB}/libcuda.so.{VERSION}",
        f"link {LIB}/libnvidia-ml.so.1 libnvidia-ml.so.{VERSION} {LIB}/libnvidia-ml.so.{VERSION}",
        "absent /usr/local/cuda-13.0/lib64/libcuda.so - -",
    ],
    "libcuda.files": [f"{LIB}/libcuda.so.{VERSION}"],
    "libcuda.loader_paths": [],
    "libcuda.proof": None,
    "torch.version": "2.14.1+cu130",
    "torch.git_version": "c",
    "torch.distributions": {"torch": "2.14.1"},
}
"""What the probe answers of a host with two GPUs, beside what `fake_host.FACTS` has."""
NOT_LOADED: dict[str, Any] = {"driver.loaded": None, "driver.open_modules": None}


def sources(*rows: str) -> dict[str, Any]:
    """What is told of lines "FILE:LINE" of apt's lists."""
    parts = (row.partition(":") for row in rows)
    found = [each for file, _, line in parts for each in apt.listed(file, [line])]
    return {"nvidia.sources": found}


FACTS |= sources(f"{files.SOURCES}:deb [signed-by={system_files.KEYRING}] {URL}/ /")


def logged(
    name: str, new: str, *, when: str = "2026-11-21T06:12:03", command: str = UPGRADES
) -> dict[str, Any]:
    """A change of a package as apt's log tells it."""
    reported = {"when": when, "action": "Upgrade", "by": None, "command": command}
    return {**reported, "name": name, "old": "1.0-1", "new": new}


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

    def _facts(self, wanted: spec.HostSpec) -> dict[str, Any]:
        keyring = None if self.keyring is None else self.keyring.hex()
        own = {"nvidia.keyring": keyring}
        found = super()._facts(wanted)
        return {**found, **FACTS, **own, **(BARE if self.bare else {})}

    def _layout(self, wanted: spec.HostSpec) -> dict[str, dict[str, Any] | None]:
        texts = {**system_texts(wanted), **self.texts}
        found = super()._layout(wanted)
        for path, text in texts.items():
            known = {} if text is None else {"size": len(text), "sha256": digest(text)}
            found[path] = entry("file", "0644", **known) if known else None
        return found


def bare_gpu_host(**changes: Any) -> GpuHost:
    """A GPU host as it comes: nouveau has the cards, nothing of NVIDIA's is installed."""
    none = ("on_disk", "libcuda", "libml", "persistenced", "persistenced_enabled")
    reported: dict[str, Any] = {
        **NOT_LOADED,
        **dict.fromkeys(f"driver.{name}" for name in none),
        **dict.fromkeys(("cuda.nvcc", "cuda.link", "cuda.alternative", "cuda.gcc")),
        **dict.fromkeys(("nvidia.packages", "nvidia.sources", "cuda.toolkits"), ()),
        **dict.fromkeys(("libcuda.cache", "libcuda.files"), ()),
        "driver.nouveau": True,
        "kernel.headers": {KERNEL: False},
        "cuda.missing": ["bin/nvcc"],
        "libcuda.links": [f"absent {LIB}/libcuda.so - -"],
    }
    texts: dict[str, bytes | None] = dict.fromkeys((*system_files.ALL, *files.ALL))
    made = {"reported": reported, "texts": texts, "keyring": None, "bare": True}
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
        reported = host.responses if isinstance(host, GpuHost) else {}
        offer = {"apt-cache madison cuda-toolkit": {"stdout": ["cuda-toolkit-13-0 | 13.0.3-1 | x"]}}
        data["fake_responses"] = {**data["fake_responses"], **offer, **reported}
        return data

    def prepare(self) -> GpuRun:
        for host in list(self.state.inventory):
            wanted = declared(host)
            for task in self.tasks:
                with ctx_state.use(self.state), ctx_host.use(host):
                    add_deploy(self.state, task, wanted, host=host)
        return self
