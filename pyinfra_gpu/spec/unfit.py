"""Keys that do not fit each other: one needs another, or nothing would read it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from pyinfra_gpu.on_host.train import presets
from pyinfra_gpu.spec.model import KEYS, BuildSpec, HostSpec
from pyinfra_gpu.spec.types import is_nightly
from pyinfra_gpu.stacks import catalogue

Problem = tuple[str, str, str, str]
"""A key, what is wrong with its value, what is allowed, and the remedy."""

_OF_BUILDS = [key.name for key in KEYS.values() if "building" in key.place]
_NO_OP = {
    "USE_LIBUV": "PyTorch reads it nowhere: libuv comes with USE_TENSORPIPE, which is on",
    "CUDA_ARCH_LIST": "PyTorch reads it nowhere",
}
"""Flags that people set, and that do nothing: why."""
_OTHER_KEYS = {
    **dict.fromkeys(("CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST"), "pytorch_archs"),
    "CMAKE_CUDA_ARCHITECTURES": "pytorch_archs",
    **dict.fromkeys(("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"), "pytorch_build_memory_gib"),
    "FLASH_ATTENTION_MAX_JOBS": "pytorch_build_memory_gib",
    **dict.fromkeys(("PYTORCH_BUILD_VERSION", "PYTORCH_BUILD_NUMBER"), "pytorch_version"),
    **dict.fromkeys(("CUDA_HOME", "CUDACXX"), "cuda_release"),
    **dict.fromkeys(("CUDAHOSTCXX", "CC", "CXX", "CMAKE_C_COMPILER"), "host_compiler"),
    "CMAKE_CXX_COMPILER": "host_compiler",
}
"""Flags that say what another key says."""
_WITHOUT_LIBUV = {
    "USE_TENSORPIPE": False,
    "USE_DISTRIBUTED": False,
    "USE_SYSTEM_LIBS": True,
    "USE_SYSTEM_TENSORPIPE": True,
}
"""Flags, and the value with which torch has no libuv."""


def problems(asked: HostSpec, spec: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """Yield what does not fit, as a person should learn of it.

    + asked: what data says, before anything is derived
    + spec: what became of it
    + declared: the keys that data gives a value
    """
    yield from _training(asked, declared)
    yield from _presets(asked, spec)
    yield from _general(asked, spec)
    yield from _torch(spec)
    yield from _build(asked, spec, declared)
    if spec.accelerator == "nvidia":
        yield from _toolkit(asked, declared)


def _training(asked: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    if "training_repo" in declared and "training_commit" not in declared and asked.training:
        remedy = f"`git ls-remote {asked.training.repo} main` prints"
        yield (
            "training_repo", "comes without training_commit", "both or neither",
            f"set training_commit to what {remedy}",
        )  # fmt: skip
    for name in ("training_commit", "training_requirements", "training_presets"):
        if name in declared and "training_repo" not in declared:
            remedy = f"set training_repo to a git URL, or remove {name}"
            yield name, "comes without training_repo", "only together with training_repo", remedy


def _presets(asked: HostSpec, spec: HostSpec) -> Iterator[Problem]:
    """A preset that this host cannot run, or whose arithmetic does not hold there."""
    declared = json.loads(asked.training.presets) if asked.training else {}
    gpus, model, key = spec.accelerator == "nvidia", spec.gpu.model, "training_presets"
    mib = catalogue().gpus[model].memory_mib if gpus and model else None
    for name in declared:
        preset = presets.from_json(name, declared[name])
        if gpus and preset.ranks is not None and preset.ranks > spec.gpu.count:
            found = f"is wrong: preset {name} has {preset.ranks} ranks, one for each GPU"
            remedy = f"set 'ranks' of {name} to {spec.gpu.count}, or None for all GPUs"
            yield key, found, f"at most {spec.gpu.count}, which is gpu_count", remedy
        if mib is not None and preset.gpu_gib * 1024 > mib:
            found = f"is wrong: preset {name} needs gpu_gib = {preset.gpu_gib:g} on each GPU"
            allowed = f"less than the {mib / 1024:.1f} GiB of a {model}, which is gpu_model"
            remedy = f"correct 'gpu_gib' of {name}, or leave it out where nobody measured it"
            yield key, found, allowed, remedy
        usual = spec.gpu.count if gpus else asked.smoke.ranks
        ranks = preset.processes(preset.ranks or usual)
        for problem, remedy in presets.arithmetic(preset, ranks):
            yield key, f"is wrong: {problem}", f"what 'multiples' of {name} says", remedy


def _general(asked: HostSpec, spec: HostSpec) -> Iterator[Problem]:
    owner, prefix, rootless = spec.owner, spec.paths.prefix, spec.privilege == "none"
    if owner is not None and rootless:
        remedy = "remove owner, or set privilege = 'sudo'"
        found = "cannot be given files with privilege = 'none'"
        yield "owner", found, "None, the login user", remedy
    if owner not in (None, "root") and prefix.startswith("/root/"):
        found, remedy = f"cannot enter /root, where prefix = {prefix!r} is", "/opt/pyinfra-gpu"
        yield "owner", found, "None or 'root'", f"set prefix = '{remedy}'"
    if spec.packages.extra and rootless:
        remedy = "remove packages_extra, or set privilege = 'sudo'"
        found = "cannot be installed with privilege = 'none'"
        yield "packages_extra", found, "None without root", remedy
    if spec.gpu.model is not None and spec.accelerator == "cpu":
        remedy = f"remove gpu_model, or set stack = {catalogue().default_stack!r}"
        found = f"is not read with the cpu stack {spec.stack}"
        yield "gpu_model", found, "no such key there", remedy


def _torch(spec: HostSpec) -> Iterator[Problem]:
    """A nightly is named by its date; a fallback is something else that can be had."""
    torch, known = spec.pytorch, catalogue().torch
    if torch.nightly and not is_nightly(torch.version):
        example = f"'{torch.version}.dev20261120', with the nightly's own release"
        remedy = f"set pytorch_version = {example}"
        yield "pytorch_version", "names no nightly", "a release and a date", remedy
    if is_nightly(torch.version) and not torch.nightly:
        remedy = "set pytorch_source = 'nightly'"
        yield "pytorch_version", "is a nightly", "a final release", remedy
    if torch.nightly and torch.wheels:
        allowed = "an index with pytorch_source = 'nightly'"
        yield "pytorch_wheels", "is not asked for a nightly", allowed, "remove pytorch_wheels"
    key, version, remedy = "pytorch_fallback", torch.fallback, "remove pytorch_fallback"
    if version is None:
        return
    if torch.source == "wheel":
        found = "is not read with pytorch_source = 'wheel'"
        yield key, found, "with a build or a nightly", remedy
    there = [name for name, each in known.items() if torch.build in each.builds]
    if version not in there:
        found = f"is no release of which there is a known wheel with the build {torch.build}"
        instead = f"set pytorch_fallback = {there[-1]!r}" if there else remedy
        yield key, found, ", ".join(there) or "None", instead
    if torch.lock == "required":
        found = "would be installed without a lock, and pytorch_lock = 'required'"
        remedy = f"{remedy}, or set pytorch_lock = 'if-there'"
        yield key, found, "None with a required lock", remedy
    if version == torch.version:
        found = "is what the build is called too: nobody could tell which is installed"
        yield key, found, "another release than pytorch_version", "set another release"


def _build(asked: HostSpec, spec: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """A build from source that cannot be, or would have no libuv."""
    torch = spec.pytorch
    if torch.building is None:
        asked_for = asked.pytorch.building or BuildSpec()
        for name in (each for each in _OF_BUILDS if each in declared):
            if name != "pytorch_flags" or asked_for.flags:
                found = f"is not read with pytorch_source = {torch.source!r}"
                remedy = f"set pytorch_source = 'source', or remove {name}"
                yield name, found, "only with pytorch_source = 'source'", remedy
        return
    pair = ("pytorch_git_url", "pytorch_commit")
    for one, other in (pair, pair[::-1]):
        if one in declared and other not in declared:
            yield one, f"comes without {other}", "both or neither", f"set {other} too"
    if "pytorch_git_url" not in declared:
        remedy = "set pytorch_git_url and pytorch_commit"
        yield "pytorch_source", "does not say from what", "a source at one commit", remedy
    if torch.lock == "required":
        found = "cannot be met: a built torch is in no lock"
        yield "pytorch_lock", found, "'if-there' with a build", "remove pytorch_lock"
    yield from _for_gpus(asked, spec, declared)
    for name, value in torch.building.flags:
        yield from _flag(spec, name, value)


def _for_gpus(asked: HostSpec, spec: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """What a build for GPUs takes, and what only it reads."""
    building, cpu = spec.pytorch.building, spec.accelerator == "cpu"
    if cpu and "pytorch_archs" in declared:
        found = f"is not read with the cpu stack {spec.stack}"
        yield "pytorch_archs", found, "no such key there", "remove pytorch_archs"
    if not cpu and not spec.cuda.toolkit:
        key = "privilege" if asked.cuda.toolkit else "cuda_toolkit"
        remedy = "set cuda_toolkit = True and privilege = 'sudo', or pytorch_source = 'wheel'"
        yield key, "needs nvcc, and no toolkit is installed here", "True with a build", remedy
    if not cpu and building and not building.archs:
        remedy = "set pytorch_archs = ['12.0'], or gpu_model"
        allowed = "pytorch_archs, or a gpu_model"
        yield "pytorch_source", "does not say for which GPUs", allowed, remedy


def _flag(spec: HostSpec, name: str, value: str) -> Iterator[Problem]:
    """A flag that does nothing, says what a key says, or builds a torch that will not do."""
    # How CMake reads an option's value.
    on = value.upper() not in ("", "0", "OFF", "NO", "FALSE", "N")
    other = _OTHER_KEYS.get(name, "")
    problem = f"which is what {other} says" if other else ""
    if name in _NO_OP:
        problem = f"which has no effect: {_NO_OP[name]}"
    elif name in _WITHOUT_LIBUV and on is _WITHOUT_LIBUV[name]:
        problem = "with which torch has no libuv, and torchrun cannot run"
    elif name == "USE_CUDA" and on is (spec.accelerator == "cpu"):
        problem = f"which contradicts the stack {spec.stack}"
    if problem:
        allowed = "options that PyTorch reads and that contradict no other key"
        remedy = f"remove {name} from it{f', and set {other}' if other else ''}"
        yield "pytorch_flags", f"sets {name}, {problem}", allowed, remedy


def _toolkit(asked: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """What only an installed toolkit reads."""
    link = asked.libcuda.toolkit_link
    if link and asked.privilege == "none":
        remedy = "remove libcuda_toolkit_link, or set privilege = 'sudo'"
        found = "writes outside prefix, and privilege is 'none'"
        yield "libcuda_toolkit_link", found, "False without root", remedy
    if not asked.cuda.toolkit:
        values = {"cuda_version": asked.cuda.version, "cuda_archs": asked.cuda.archs}
        for name, value in {**values, "libcuda_toolkit_link": link}.items():
            if value:
                remedy = f"remove {name}, or set cuda_toolkit = True"
                found = "needs a toolkit, and cuda_toolkit is False"
                yield name, found, "no such key then", remedy
