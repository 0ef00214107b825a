"""Keys that do not fit each other: one needs another, or nothing would read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyinfra_gpu.errors import SpecError, sentence
from pyinfra_gpu.spec.keys import KEYS
from pyinfra_gpu.spec.values import BadValueError
from pyinfra_gpu.stacks import Stack, catalogue

_GPU_STAGES = ("driver", "cuda", "libcuda")


def error(
    where: str, key: object, value: object, problem: str, allowed: str, remedy: str
) -> SpecError:
    """Return the error for one key: where, which, what is wrong, what is allowed, what to do."""
    return SpecError(sentence(where, key, value, problem, allowed=allowed, remedy=remedy))


def commit_remedy(repo: object) -> str:
    """Return how to find a commit; the repo's URL is shown only if it passed its own check."""
    try:
        url = KEYS["training_repo"].check(repo) or "URL"
    except BadValueError:
        url = "URL"
    return f"set training_commit to what `git ls-remote {url} main` prints"


def refuse_unfit(values: Mapping[str, Any], stack: Stack, where: str) -> None:
    """Raise SpecError for a key that needs another key, and for one that nothing would read.

    `values` are those that data gives, checked one by one; `where` names their host.
    """
    _refuse_training_keys(values, where)
    _refuse_owner(values, where)
    if stack.accelerator == "cpu":
        _refuse_gpu_keys(values, stack, where)
    else:
        _refuse_toolkit_keys(values, where)


def _refuse_training_keys(values: Mapping[str, Any], where: str) -> None:
    repo, commit = values.get("training_repo"), values.get("training_commit")
    if repo is not None and commit is None:
        problem, allowed = "comes without training_commit", "both or neither"
        raise error(where, "training_repo", repo, problem, allowed, commit_remedy(repo))
    for name in ("training_commit", "training_requirements"):
        if values.get(name) is not None and repo is None:
            problem, allowed = "comes without training_repo", "only together with training_repo"
            remedy = f"set training_repo to a git URL, or remove {name}"
            raise error(where, name, values[name], problem, allowed, remedy)


def _refuse_owner(values: Mapping[str, Any], where: str) -> None:
    owner, prefix = values.get("owner"), values.get("prefix", "")
    if owner is not None and values.get("privilege") == "none":
        problem, allowed = "cannot be given files with privilege = 'none'", "None, the login user"
        remedy = "remove owner, or set privilege = 'sudo'"
        raise error(where, "owner", owner, problem, allowed, remedy)
    if owner not in (None, "root") and prefix.startswith("/root/"):
        problem, allowed = f"cannot enter /root, where prefix = {prefix!r} is", "None or 'root'"
        remedy = f"set prefix = '/home/{owner}/pyinfra-gpu'"
        raise error(where, "owner", owner, problem, allowed, remedy)


def _refuse_gpu_keys(values: Mapping[str, Any], stack: Stack, where: str) -> None:
    """Refuse what only a host with GPUs reads; a value that says what is so anyway passes."""
    names = [key.name for key in KEYS.values() if key.stage in _GPU_STAGES]
    for name in ("gpu_model", *names):
        value = values.get(name)
        if value not in (None, (), KEYS[name].default):
            problem, allowed = f"is not read with the cpu stack {stack.name}", "no such key there"
            remedy = f"remove {name}, or set stack = {catalogue().default_stack!r}"
            raise error(where, name, value, problem, allowed, remedy)


def _refuse_toolkit_keys(values: Mapping[str, Any], where: str) -> None:
    """Refuse what only an installed toolkit reads."""
    if values.get("libcuda_toolkit_link") and values.get("privilege") == "none":
        problem, allowed = "writes outside prefix, and privilege is 'none'", "False without root"
        remedy = "remove libcuda_toolkit_link, or set privilege = 'sudo'"
        raise error(where, "libcuda_toolkit_link", True, problem, allowed, remedy)
    if values.get("cuda_toolkit", True):
        return
    for name in ("cuda_version", "cuda_archs", "libcuda_toolkit_link"):
        if values.get(name):
            problem, allowed = "needs a toolkit, and cuda_toolkit is False", "no such key then"
            remedy = f"remove {name}, or set cuda_toolkit = True"
            raise error(where, name, values[name], problem, allowed, remedy)
