"""torch built from source: from which tree, for which GPUs, with which flags, and on which host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyinfra_gpu.spec import nvidia_values as nv
from pyinfra_gpu.spec import sources
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import Given, computed, key
from pyinfra_gpu.spec.values import BadValueError, kind

_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_VALUE = re.compile(r"[A-Za-z0-9_.,+:;=/ -]{1,200}")

NO_OP: Mapping[str, str] = {
    "USE_LIBUV": "PyTorch reads it nowhere: libuv comes with USE_TENSORPIPE, which is on",
    "CUDA_ARCH_LIST": "PyTorch reads it nowhere",
}
"""Flags that people set, and that do nothing: why."""

OTHER_KEYS: Mapping[str, str] = {
    "CUDA_ARCH_LIST": "pytorch_archs",
    "TORCH_CUDA_ARCH_LIST": "pytorch_archs",
    "MAX_JOBS": "pytorch_build_memory_gib",
    "CMAKE_BUILD_PARALLEL_LEVEL": "pytorch_build_memory_gib",
    "FLASH_ATTENTION_MAX_JOBS": "pytorch_build_memory_gib",
    "PYTORCH_BUILD_VERSION": "pytorch_version",
    "PYTORCH_BUILD_NUMBER": "pytorch_version",
    "CUDA_HOME": "cuda_release",
    "CUDNN_ROOT": "pytorch_cudnn",
    "CUDNN_INCLUDE_DIR": "pytorch_cudnn",
    "CUDNN_LIBRARY": "pytorch_cudnn",
    "CUDACXX": "cuda_release",
    "CUDAHOSTCXX": "host_compiler",
    "CC": "host_compiler",
    "CXX": "host_compiler",
    "CMAKE_C_COMPILER": "host_compiler",
    "CMAKE_CXX_COMPILER": "host_compiler",
    "CMAKE_CUDA_ARCHITECTURES": "pytorch_archs",
}
"""Flags that say what another key says."""

WITHOUT_LIBUV: Mapping[str, bool] = {
    "USE_TENSORPIPE": False,
    "USE_DISTRIBUTED": False,
    "USE_SYSTEM_LIBS": True,
    "USE_SYSTEM_TENSORPIPE": True,
}
"""Flags, and the value with which torch has no libuv."""

_BY_CHANCE = {
    "BUILD_TEST": "0",
    "USE_DISTRIBUTED": "1",
    "USE_TENSORPIPE": "1",
    "USE_GLOO": "1",
    "USE_MPI": "0",
    "USE_UCC": "0",
    "USE_NUMA": "0",
    "USE_ROCM": "0",
    "USE_XPU": "0",
    "USE_CUSPARSELT": "0",
    "USE_CUDSS": "0",
    "USE_CUFILE": "0",
    "USE_CCACHE": "0",  # it is given as the compilers' launcher, where it is there
}
"""What CMake would decide by what it finds on a host; `pytorch_flags` changes each of them."""

_SYSTEMS_HEADERS = (
    "/usr/include",
    *(f"/usr/include/{each}-linux-gnu" for each in ("x86_64", "aarch64")),
)
"""Where NVIDIA's packages of cuDNN put theirs, by their file lists."""
_CUDA = ("USE_CUDA", "USE_CUDNN", "USE_NCCL")


def flags(value: object) -> tuple[tuple[str, str], ...]:
    """Accept a dict of CMake options and their values, sorted; True and False become 1 and 0."""
    if not isinstance(value, dict):
        raise BadValueError(f"is {kind(value)}, not a dict")
    found = {}
    for name, each in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadValueError(f"holds {name!r}, which is not the name of an option")
        if isinstance(each, bool | int) and each in (0, 1):
            each = str(int(each))
        if not isinstance(each, str) or not _VALUE.fullmatch(each):
            problem = f"gives {name} {kind(each)}, which is not True, False or plain text"
            raise BadValueError(problem)
        found[name] = each
    return tuple(sorted(found.items()))


def is_on(value: str) -> bool:
    """Return how CMake reads an option's value."""
    return value.upper() not in ("", "0", "OFF", "NO", "FALSE", "N")


def is_declared(given: Given) -> bool:
    """Return whether torch is built from source."""
    return bool(given["pytorch_source"] == "source")


def _archs(given: Given, capabilities: Sequence[str] | None) -> tuple[str, ...]:
    """Return those that data names, else the GPU model's; on hosts without GPU there are none."""
    if given.stack.accelerator == "cpu":
        return ()
    model = given["gpu_model"]
    own = () if model is None else (given.known.gpus[model].compute_capability,)
    return tuple(capabilities or own)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSpec:
    """What torch is built from, and how. `members` are the hosts of the inventory that have one.

    `cuda` is whether the build is one for GPUs.
    """

    git_url: str | None = key(
        sources.git_url,
        default=None,
        allowed="a git URL (https, http, ssh, git, file or user@host:path), or None",
        example="https://github.com/pytorch/pytorch",
        help="the repository torch is built from, a mirror of it, or a bundle",
    )
    commit: str | None = key(
        sources.commit,
        default=None,
        allowed="40 hexadecimal digits",
        example="5c48869085840e9cbb80e2a4d2b5e5d7c3a1f602",
        help="the commit of pytorch_git_url to build",
        synonyms=("torch_commit",),
    )
    source_url: str | None = key(
        sources.index_url,
        default=None,
        allowed="an http, https or file URL, or None",
        example="https://mirror.example.org/pytorch-v2.14.1.tar.gz",
        help="the archive of a release, in the place of a repository",
        synonyms=("pytorch_tarball",),
    )
    source_sha256: str | None = key(
        nv.sha256,
        default=None,
        allowed="64 hexadecimal digits",
        example="0123456789abcdef" * 4,
        help="the SHA-256 of pytorch_source_url",
    )
    archs: tuple[str, ...] = key(
        nv.archs,
        default=None,
        allowed="a list of compute capabilities as text, or None",
        example=["12.0"],
        help="what torch is compiled for; None = the gpu_model's",
        settle=_archs,
    )
    flags: tuple[tuple[str, str], ...] = key(
        flags,
        default={},
        allowed="a dict of CMake options of PyTorch's and their values",
        example={"USE_MKLDNN": "0"},
        help="options of the build beside those that this project sets",
        settle=lambda given, pairs: tuple(pairs),
        synonyms=("build_flags",),
    )
    nccl_url: str | None = key(
        sources.git_url,
        default=None,
        allowed="a git URL (https, http, ssh, git, file or user@host:path), or None",
        example="https://mirror.example.org/nccl.git",
        help="where the tag of NCCL that the source pins is fetched from; None = NVIDIA's, GitHub",
    )
    cudnn: str | None = key(
        sources.folder,
        default=None,
        allowed="an absolute path on the host, or None",
        example="/opt/cudnn-9.20",
        help="the folder with include and lib of the cuDNN that torch is built with; None = the"
        " system's",
    )
    builder: str | None = key(
        v.text,
        default=None,
        allowed="the name of a host of the inventory, or None",
        example="ws1",
        help="the host that builds; None = the first of its kind",
    )
    memory_gib: float | None = key(
        v.number(1, 4096),
        default=None,
        example=32,
        help="memory that a build may use; None = four fifths of the host's",
        name="pytorch_build_memory_gib",
    )
    cuda: bool = computed(lambda given: given.stack.accelerator != "cpu")
    members: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """Every option by name: what would be found by chance, and what data declares over it."""
        cuda = dict.fromkeys(_CUDA, "1" if self.cuda else "0")
        place = self.cudnn
        found = {"CUDNN_INCLUDE_DIR": f"{place}/include", "CUDNN_LIBRARY": f"{place}/lib"}
        cuda |= found if place else {}
        return {**_BY_CHANCE, **cuda, "USE_SYSTEM_NCCL": "0", **dict(self.flags)}

    @property
    def takes_cudnn(self) -> bool:
        """Whether a cuDNN of the host's goes into the wheel."""
        return self.cuda and self.settings["USE_CUDNN"] == "1"

    @property
    def cudnn_headers(self) -> tuple[str, ...]:
        """The folders in which the headers of the cuDNN that is taken can be."""
        if not self.takes_cudnn:
            return ()
        return (f"{self.cudnn}/include",) if self.cudnn else _SYSTEMS_HEADERS

    @property
    def origin(self) -> dict[str, str]:
        """The source as the build's plan has it."""
        if self.commit is not None:
            return {"git": str(self.git_url), "commit": self.commit}
        return {"url": str(self.source_url), "sha256": str(self.source_sha256)}

    @property
    def identity(self) -> str:
        """What the source is, wherever it comes from: a commit or a digest."""
        return str(self.commit or self.source_sha256)
