"""Keys that do not fit each other: one needs another, or nothing would read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyinfra_gpu.on_host.train import presets
from pyinfra_gpu.spec.model import KEYS, HostSpec
from pyinfra_gpu.stacks import catalogue

Problem = tuple[str, str, str, str]
"""A key, what is wrong with its value, what is allowed, and the remedy."""

_OF_BUILDS = tuple(key.name for key in KEYS.values() if "building" in key.place)
_OF_TOOLKITS = ("cuda_version", "cuda_archs", "libcuda_toolkit_link")
_OF_TRAINING = ("training_commit", "training_requirements", "training_presets")
_SAID_BY = {
    "pytorch_archs": ("CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST", "CMAKE_CUDA_ARCHITECTURES"),
    "pytorch_build_memory_gib": (
        "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "FLASH_ATTENTION_MAX_JOBS",
    ),
    "pytorch_version": ("PYTORCH_BUILD_VERSION", "PYTORCH_BUILD_NUMBER"),
    "cuda_release": ("CUDA_HOME", "CUDACXX"),
    "host_compiler": ("CUDAHOSTCXX", "CC", "CXX", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER"),
}  # fmt: skip
"""Keys, and the flags that say the same."""
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
    yield from _alone(asked, declared)
    yield from _not_read(asked, spec, declared)
    yield from _presets(asked, spec)
    yield from _torch(spec)
    if spec.pytorch.building is not None:
        yield from _build(asked, spec, declared)
    if spec.owner not in (None, "root") and spec.paths.prefix.startswith("/root/"):
        found = f"cannot enter /root, where prefix = {spec.paths.prefix!r} is"
        yield "owner", found, "None or 'root'", "set prefix = '/opt/pyinfra-gpu'"


def _alone(asked: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """Keys of which one says nothing without the other."""
    repo = asked.training and asked.training.repo
    commit = f"set training_commit to what `git ls-remote {repo} main` prints"
    pairs = {"pytorch_git_url": "pytorch_commit", "pytorch_commit": "pytorch_git_url"}
    needs = {"training_repo": "training_commit", **dict.fromkeys(_OF_TRAINING, "training_repo")}
    if asked.pytorch.source == "source":
        needs |= pairs
    for key, other in needs.items():
        if key in declared and other not in declared:
            remedy = commit if key == "training_repo" else f"set {other}, or remove {key}"
            yield key, f"comes without {other}", f"only together with {other}", remedy


def _not_read(asked: HostSpec, spec: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """Keys that another key makes useless."""
    torch, nvidia = spec.pytorch, spec.accelerator == "nvidia"
    of_builds = _OF_BUILDS if nvidia or torch.building is None else ("pytorch_archs",)
    stack = f"stack = {spec.stack!r}"
    rules: list[tuple[bool, tuple[str, ...], str, str]] = [
        (spec.privilege == "none", ("owner", "packages_extra"), "privilege = 'none'", "'sudo'"),
        (spec.privilege == "none" and nvidia, ("libcuda_toolkit_link",), "privilege = 'none'",
         "'sudo'"),
        (not nvidia, ("gpu_model",), stack, repr(catalogue().default_stack)),
        (nvidia and not asked.cuda.toolkit, _OF_TOOLKITS, "cuda_toolkit = False", "True"),
        (torch.nightly, ("pytorch_wheels",), "pytorch_source = 'nightly'", "'wheel'"),
        (torch.source == "wheel", ("pytorch_fallback",), "pytorch_source = 'wheel'", "'source'"),
        (torch.building is None, of_builds, f"pytorch_source = {torch.source!r}", "'source'"),
        (torch.building is not None and not nvidia, of_builds, stack,
         repr(catalogue().default_stack)),
    ]  # fmt: skip
    for applies, keys, reason, instead in rules:
        for key in keys:
            if applies and key in declared and KEYS[key].of(asked):
                remedy = f"remove {key}, or set {reason.partition(' ')[0]} = {instead}"
                yield key, f"is not read with {reason}", "no such key then", remedy


def _presets(asked: HostSpec, spec: HostSpec) -> Iterator[Problem]:
    """A preset that this host cannot run, or whose arithmetic does not hold there."""
    gpus, model, key = spec.accelerator == "nvidia", spec.gpu.model, "training_presets"
    mib = catalogue().gpus[model].memory_mib if gpus and model else None
    for name, given in (asked.training.presets if asked.training else {}).items():
        preset = presets.from_json(name, given.as_json())
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


def _torch(spec: HostSpec) -> Iterator[Problem]:
    """A nightly is named by its date; a fallback is something else that can be had."""
    torch, known, dated = spec.pytorch, catalogue().torch, ".dev" in spec.pytorch.version
    if torch.nightly and not dated:
        remedy = f"set pytorch_version = '{torch.version}.dev20261120', with its release and date"
        yield "pytorch_version", "names no nightly", "a release and a date", remedy
    if dated and not torch.nightly:
        remedy = "set pytorch_source = 'nightly'"
        yield "pytorch_version", "is a nightly", "a final release", remedy
    if torch.fallback is None:
        return
    key, remedy = "pytorch_fallback", "remove pytorch_fallback"
    there = [name for name, each in known.items() if torch.build in each.builds]
    if torch.fallback not in there:
        found = f"is no release of which there is a known wheel with the build {torch.build}"
        instead = f"set {key} = {there[-1]!r}" if there else remedy
        yield key, found, ", ".join(there) or "None", instead
    if torch.lock == "required":
        found = "would be installed without a lock, and pytorch_lock = 'required'"
        instead = f"{remedy}, or set pytorch_lock = 'if-there'"
        yield key, found, "None with a required lock", instead
    if torch.fallback == torch.version:
        found = "is what the build is called too: nobody could tell which is installed"
        yield key, found, "another release than pytorch_version", "set another release"


def _build(asked: HostSpec, spec: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """A build from source that cannot be, or would have no libuv."""
    torch, building, key = spec.pytorch, spec.pytorch.building, "pytorch_source"
    if "pytorch_git_url" not in declared:
        remedy = "set pytorch_git_url and pytorch_commit"
        yield key, "does not say from what", "a source at one commit", remedy
    if torch.lock == "required":
        found = "cannot be met: a built torch is in no lock"
        yield "pytorch_lock", found, "'if-there' with a build", "remove pytorch_lock"
    if spec.accelerator == "nvidia":
        if not spec.cuda.toolkit:
            because = "privilege" if asked.cuda.toolkit else "cuda_toolkit"
            remedy = "set cuda_toolkit = True and privilege = 'sudo', or pytorch_source = 'wheel'"
            yield because, "needs nvcc, and no toolkit is installed here", "a toolkit", remedy
        if building and not building.archs:
            remedy = "set pytorch_archs = ['12.0'], or gpu_model"
            yield key, "does not say for which GPUs", "pytorch_archs, or a gpu_model", remedy
    yield from _flags(spec)


def _flags(spec: HostSpec) -> Iterator[Problem]:
    """A flag that does nothing, says what a key says, or builds a torch that will not do."""
    for name, value in spec.pytorch.building.flags.items() if spec.pytorch.building else ():
        # How CMake reads an option's value.
        on = value.upper() not in ("", "0", "OFF", "NO", "FALSE", "N")
        other = next((key for key, flags in _SAID_BY.items() if name in flags), "")
        problem = f"which is what {other} says" if other else ""
        if name == "USE_LIBUV":
            problem = "which PyTorch reads nowhere: libuv comes with USE_TENSORPIPE, which is on"
        elif on is _WITHOUT_LIBUV.get(name):
            problem = "with which torch has no libuv, and torchrun cannot run"
        elif name == "USE_CUDA" and on is (spec.accelerator == "cpu"):
            problem = f"which contradicts the stack {spec.stack}"
        if problem:
            allowed = "options that PyTorch reads and that contradict no other key"
            remedy = f"remove {name} from it{f', and set {other}' if other else ''}"
            yield "pytorch_flags", f"sets {name}, {problem}", allowed, remedy
