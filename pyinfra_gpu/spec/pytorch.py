"""Which torch, from where, on which Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.spec import sources
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import Given, computed, from_stack, key, part
from pyinfra_gpu.spec.lock import Lock
from pyinfra_gpu.spec.pytorch_build import BuildSpec, is_declared


def _indexes(given: Given) -> tuple[str | None, str | None]:
    if given["pytorch_source"] == "nightly":
        return None, given.known.nightly_index_of(given["pytorch_build"])
    return given.known.indexes(given.stack, given["pytorch_version"], given["pytorch_build"])


def _extra_index(given: Given) -> str | None:
    """Beside an index that data names no other is asked, unless that is named too."""
    return None if given.declares("pytorch_index_url") else _indexes(given)[1]


def _fallback_from(given: Given) -> tuple[str, ...]:
    """Return what the fallback is asked for by, with its index where one has to be named."""
    version, build = given["pytorch_fallback"], given["pytorch_build"]
    if version is None:
        return ()
    if given.known.serves(version, build):
        return (f"torch=={version}",)
    if given.declares("pytorch_index_url") or given.declares("pytorch_extra_index_url"):
        return (f"torch=={version}+{build}",)
    return (f"torch=={version}+{build}", "--extra-index-url", given.known.index_of(build))


def _local_version(given: Given) -> bool:
    return not given.known.serves(given["pytorch_version"], given["pytorch_build"])


@dataclass(frozen=True, kw_only=True, slots=True)
class PytorchSpec:
    """Which torch, from where, on which Python.

    `fallback_from` is what the fallback is asked for by, as words for the installer.
    `local_version` is whether the index names the build in the version ("2.13.0+cpu"). The
    package index does not, so asking it for "2.14.1+cu130" would find nothing. `locks` are those
    that there are for this torch, one for each platform.
    """

    source: Literal["wheel", "nightly", "source"] = key(
        v.source,
        default="wheel",
        allowed="'wheel', 'nightly' or 'source'",
        example="source",
        help="where torch comes from; 'nightly' keeps its files, 'source' builds it once per kind"
        " of host",
    )
    version: str = key(
        v.torch_version,
        default=from_stack(lambda given: given.stack.torch.version),
        allowed="a final torch release with three numbers, or a nightly's with its date",
        example="2.14.0",
        help="the torch release",
        synonyms=("torch",),
    )
    build: str = key(
        v.torch_build,
        default=from_stack(lambda given: given.stack.torch.build),
        allowed="'cpu' or 'cu' and three digits",
        example="cu126",
        help="the torch build",
    )
    python: str = key(
        v.interpreter,
        default="python3",
        allowed="a command, an absolute path or a version such as '3.12'",
        example="3.12",
        help="the host's Python that the virtual environment is made from",
        synonyms=("python", "python_version"),
    )
    environments_kept: int = key(
        v.integer(1, 100),
        default=2,
        example=1,
        help="how many virtual environments are kept that newer ones have replaced",
    )
    index_url: str | None = key(
        sources.index_url,
        default=from_stack(lambda given: _indexes(given)[0]),
        allowed="an http, https or file URL, or None for the package index",
        example="https://mirror.example.org/simple",
        help="the index torch is installed from",
    )
    extra_index_url: str | None = key(
        sources.index_url,
        default=from_stack(_extra_index),
        allowed="an http, https or file URL, or None",
        example="https://mirror.example.org/extra",
        help="a second index, asked first for what it has",
    )
    wheels: str | None = key(
        sources.wheels,
        default=None,
        allowed="an absolute path on the host, an http or https URL, or None",
        example="/srv/wheels",
        help="a folder of wheels, as `pyinfra-gpu lock` fills it; no index is asked then",
        synonyms=("wheelhouse", "find_links"),
    )
    lock: Literal["if-there", "required", "ignore"] = key(
        v.choice("if-there", "required", "ignore"),
        default="if-there",
        example="required",
        help="whether only what a lock of `pyinfra-gpu lock` names is installed, by its digest;"
        " 'required' stops a host for which there is none",
        synonyms=("locked", "hashes"),
    )
    fallback: str | None = key(
        v.torch_release,
        default=None,
        allowed="a final torch release with three numbers, or None",
        example="2.14.1",
        help="the release installed as a wheel where a build or a nightly cannot be had; said in"
        " every run and check until that is cured; None = such a host fails",
    )
    building: BuildSpec | None = part(
        BuildSpec, stage="pytorch", prefix="pytorch_", when=is_declared
    )
    uv_version: str = computed(lambda given: given.stack.uv)
    local_version: bool = computed(_local_version, default=True)
    fallback_from: tuple[str, ...] = computed(_fallback_from, default=())
    locks: tuple[Lock, ...] = ()

    @property
    def full_fallback(self) -> str | None:
        """What `torch.__version__` says where the fallback is installed; None without one."""
        return None if self.fallback is None else f"{self.fallback}+{self.build}"

    @property
    def nightly(self) -> bool:
        """Whether torch is a nightly, whose files the controller keeps."""
        return self.source == "nightly"

    @property
    def full_version(self) -> str:
        """What `torch.__version__` must say, e.g. "2.13.0+cpu"."""
        return f"{self.version}+{self.build}"

    @property
    def requirement(self) -> str:
        """What the installer is asked for."""
        return f"torch=={self.full_version if self.local_version else self.version}"
