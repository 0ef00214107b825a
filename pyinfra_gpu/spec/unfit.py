"""Keys that do not fit each other: one needs another, or nothing would read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyinfra_gpu.errors import Problem
from pyinfra_gpu.spec.model import KEYS, HostSpec
from pyinfra_gpu.stacks import catalogue

_OF_BUILDS = tuple(key.name for key in KEYS.values() if "building" in key.place)
_OF_TOOLKITS = ("cuda_version", "cuda_archs", "libcuda_toolkit_link")
_OF_TRAINING = ("training_commit", "training_requirements", "training_presets")


def problems(asked: HostSpec, spec: HostSpec, declared: Collection[str]) -> Iterator[Problem]:
    """Yield what does not fit, as a person should learn of it.

    + asked: what data says, before anything is derived
    + spec: what became of it
    + declared: the keys that data gives a value
    """
    for key, other in _needed(asked, declared):
        remedy = f"set {other}, or remove {key}"
        if key == "training_repo" and asked.training:
            commit = f"`git ls-remote {asked.training.repo} main` prints"
            remedy = f"set {other} to what {commit}"
        yield Problem(key, f"comes without {other}", f"only together with {other}", remedy)
    for key, reason, instead in _not_read(asked, spec):
        if KEYS[key].of(asked):
            remedy = f"remove {key}, or set {reason.partition(' ')[0]} = {instead!r}"
            yield Problem(key, f"is not read with {reason}", "no such key then", remedy)
    yield from _torch(asked, spec)
    if spec.owner not in (None, "root") and spec.paths.prefix.startswith("/root/"):
        found = f"cannot enter /root, where prefix = {spec.paths.prefix!r} is"
        yield Problem("owner", found, "None or 'root'", "set prefix = '/opt/pyinfra-gpu'")


def _needed(asked: HostSpec, declared: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield (key, the key that is not there, without which it says nothing)."""
    needs = {"training_repo": "training_commit", **dict.fromkeys(_OF_TRAINING, "training_repo")}
    if asked.pytorch.source == "source":
        needs |= {"pytorch_git_url": "pytorch_commit", "pytorch_commit": "pytorch_git_url"}
        needs["pytorch_source"] = "pytorch_git_url"
    return ((key, other) for key, other in needs.items() if {key, other} & {*declared} == {key})


def _not_read(asked: HostSpec, spec: HostSpec) -> Iterator[tuple[str, str, object]]:
    """Yield (key, what makes it useless as KEY = VALUE, the value with which it is read)."""
    nvidia, source = spec.accelerator == "nvidia", spec.pytorch.source
    of_source, of_stack, of_privilege = f"pytorch_source = {source!r}", ["gpu_model"], ["owner"]
    if source == "wheel":
        yield "pytorch_fallback", of_source, "source"
    if source == "nightly":
        yield "pytorch_wheels", of_source, "wheel"
    if source == "source":
        of_stack.append("pytorch_archs")
    else:
        yield from ((key, of_source, "source") for key in _OF_BUILDS)
    if nvidia:
        of_privilege.append("libcuda_toolkit_link")
    else:
        default = catalogue().default_stack
        yield from ((key, f"stack = {spec.stack!r}", default) for key in of_stack)
    if nvidia and not asked.cuda.toolkit:
        yield from ((key, "cuda_toolkit = False", True) for key in _OF_TOOLKITS)
    if spec.privilege == "none":
        of_privilege.append("packages_extra")
        yield from ((key, "privilege = 'none'", "sudo") for key in of_privilege)


def _torch(asked: HostSpec, spec: HostSpec) -> Iterator[Problem]:
    """A nightly is named by its date; a build needs a compiler, and neither is in a lock."""
    torch, building, locked = spec.pytorch, spec.pytorch.building, spec.pytorch.lock == "required"
    dated, final = ".dev" in torch.version, torch.version.partition(".dev")[0]
    key, fallback = "pytorch_version", torch.fallback
    if torch.nightly and not dated:
        remedy = f"set pytorch_version = '{final}.dev20261120', with its release and date"
        yield Problem(key, "names no nightly", "a release and a date", remedy)
    if dated and not torch.nightly:
        yield Problem(key, "is a nightly", "a final release", "set pytorch_source = 'nightly'")
    if fallback is not None:
        key, remedy = "pytorch_fallback", "remove it, or set another release"
        there = [name for name, each in catalogue().torch.items() if torch.build in each.builds]
        if fallback not in there or fallback == torch.version:
            found = f"is no other release of which there is a wheel with the build {torch.build}"
            yield Problem(key, found, ", ".join(there) or "None", remedy)
        if locked:
            found = "would be installed without a lock, and pytorch_lock = 'required'"
            yield Problem(key, found, "None with a required lock", "remove it")
    if building is None:
        return
    if locked:
        found, remedy = "cannot be met: a built torch is in no lock", "remove pytorch_lock"
        yield Problem("pytorch_lock", found, "'if-there' with a build", remedy)
    if building.cuda and not spec.cuda.toolkit:
        because = "privilege" if asked.cuda.toolkit else "cuda_toolkit"
        remedy = "set cuda_toolkit = True and privilege = 'sudo', or pytorch_source = 'wheel'"
        yield Problem(because, "needs nvcc, and no toolkit is installed here", "a toolkit", remedy)
    if building.cuda and not building.archs:
        remedy = "set pytorch_archs = ['12.0'], or gpu_model"
        found, allowed = "does not say for which GPUs", "pytorch_archs, or a gpu_model"
        yield Problem("pytorch_source", found, allowed, remedy)
