"""Keys that do not fit each other: one needs another, or nothing would read it."""

from __future__ import annotations

from pyinfra_gpu.errors import SpecError, sentence
from pyinfra_gpu.on_host.train import presets
from pyinfra_gpu.on_host.train.presets import Preset
from pyinfra_gpu.spec.host import KEYS
from pyinfra_gpu.spec.key import Given
from pyinfra_gpu.spec.training import commit_remedy
from pyinfra_gpu.spec.unfit_build import refuse_unfit_build

_GPU_STAGES = ("driver", "cuda", "libcuda")


def error(
    where: str, key: object, value: object, problem: str, allowed: str, remedy: str
) -> SpecError:
    """Return the error for one key: where, which, what is wrong, what is allowed, what to do."""
    return SpecError(sentence(where, key, value, problem, allowed=allowed, remedy=remedy))


def refuse_unfit(given: Given, where: str) -> None:
    """Raise SpecError for a key that needs another key, and for one that nothing would read.

    `where` names the host whose data it is.
    """
    _refuse_training_keys(given, where)
    _refuse_owner(given, where)
    _refuse_packages(given, where)
    refuse_unfit_build(given, where)
    if given.stack.accelerator == "cpu":
        _refuse_gpu_keys(given, where)
    else:
        _refuse_toolkit_keys(given, where)


def _refuse_training_keys(given: Given, where: str) -> None:
    repo = given["training_repo"]
    if repo is not None and not given.declares("training_commit"):
        problem, allowed = "comes without training_commit", "both or neither"
        remedy = commit_remedy({"training_repo": repo})
        raise error(where, "training_repo", repo, problem, allowed, remedy)
    for name in ("training_commit", "training_requirements", "training_presets"):
        if given.declares(name) and repo is None:
            problem, allowed = "comes without training_repo", "only together with training_repo"
            remedy = f"set training_repo to a git URL, or remove {name}"
            raise error(where, name, given[name], problem, allowed, remedy)
    _refuse_presets(given, where)


def _refuse_presets(given: Given, where: str) -> None:
    """Refuse a preset that this host cannot run, or whose arithmetic does not hold there."""
    declared = given["training_presets"]
    usual = given["gpu_count"] if given.stack.accelerator == "nvidia" else given["smoke_ranks"]
    for name in declared:
        preset = presets.from_json(name, declared[name])
        if given.stack.accelerator == "nvidia":
            _refuse_too_large(given, where, preset)
        ranks = preset.processes(preset.ranks or usual)
        for problem, remedy in presets.arithmetic(preset, ranks):
            allowed = f"what 'multiples' of {name} says"
            raise error(
                where, "training_presets", declared, f"is wrong: {problem}", allowed, remedy
            )


def _refuse_too_large(given: Given, where: str, preset: Preset) -> None:
    """Refuse what needs more GPUs, or more memory of each, than are declared."""
    declared, count, model = (
        given[name] for name in ("training_presets", "gpu_count", "gpu_model")
    )
    if preset.ranks is not None and preset.ranks > count:
        problem = f"is wrong: preset {preset.name} has {preset.ranks} ranks, one for each GPU"
        allowed = f"at most {count}, which is gpu_count"
        remedy = f"set 'ranks' of {preset.name} to {count}, or None for all GPUs"
        raise error(where, "training_presets", declared, problem, allowed, remedy)
    mib = given.known.gpus[model].memory_mib if model is not None else None
    if mib is not None and preset.gpu_gib * 1024 > mib:
        problem = f"is wrong: preset {preset.name} needs gpu_gib = {preset.gpu_gib:g} on each GPU"
        allowed = f"less than the {mib / 1024:.1f} GiB of a {model}, which is gpu_model"
        remedy = f"correct 'gpu_gib' of {preset.name}, or leave it out where nobody measured it"
        raise error(where, "training_presets", declared, problem, allowed, remedy)


def _refuse_owner(given: Given, where: str) -> None:
    owner, prefix = given["owner"], given["prefix"]
    if owner is not None and given["privilege"] == "none":
        problem, allowed = "cannot be given files with privilege = 'none'", "None, the login user"
        remedy = "remove owner, or set privilege = 'sudo'"
        raise error(where, "owner", owner, problem, allowed, remedy)
    if owner not in (None, "root") and prefix.startswith("/root/"):
        problem, allowed = f"cannot enter /root, where prefix = {prefix!r} is", "None or 'root'"
        remedy = "set prefix = '/opt/pyinfra-gpu'"
        raise error(where, "owner", owner, problem, allowed, remedy)


def _refuse_packages(given: Given, where: str) -> None:
    extra = given["packages_extra"]
    if extra and given["privilege"] == "none":
        problem, allowed = "cannot be installed with privilege = 'none'", "None without root"
        remedy = "remove packages_extra, or set privilege = 'sudo'"
        raise error(where, "packages_extra", extra, problem, allowed, remedy)


def _refuse_gpu_keys(given: Given, where: str) -> None:
    """Refuse what only a host with GPUs reads; a value for what is so anyway passes."""
    names = [key.name for key in KEYS.values() if key.stage in _GPU_STAGES]
    for name in ("gpu_model", *names):
        if given.declares(name) and given[name] not in ((), KEYS[name].default):
            problem = f"is not read with the cpu stack {given.stack.name}"
            remedy = f"remove {name}, or set stack = {given.known.default_stack!r}"
            raise error(where, name, given[name], problem, "no such key there", remedy)


def _refuse_toolkit_keys(given: Given, where: str) -> None:
    """Refuse what only an installed toolkit reads."""
    if given["libcuda_toolkit_link"] and given["privilege"] == "none":
        problem, allowed = "writes outside prefix, and privilege is 'none'", "False without root"
        remedy = "remove libcuda_toolkit_link, or set privilege = 'sudo'"
        raise error(where, "libcuda_toolkit_link", True, problem, allowed, remedy)
    if given["cuda_toolkit"]:
        return
    for name in ("cuda_version", "cuda_archs", "libcuda_toolkit_link"):
        if given[name]:
            problem, allowed = "needs a toolkit, and cuda_toolkit is False", "no such key then"
            remedy = f"remove {name}, or set cuda_toolkit = True"
            raise error(where, name, given[name], problem, allowed, remedy)
