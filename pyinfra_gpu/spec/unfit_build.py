"""Keys of a build from source that do not fit each other, or that would build something else."""

from __future__ import annotations

from pyinfra_gpu.errors import SpecError, sentence
from pyinfra_gpu.spec.key import Given
from pyinfra_gpu.spec.pytorch_build import NO_OP, OTHER_KEYS, WITHOUT_LIBUV, is_on

_KEYS = (
    "pytorch_git_url",
    "pytorch_commit",
    "pytorch_source_url",
    "pytorch_source_sha256",
    "pytorch_archs",
    "pytorch_flags",
    "pytorch_builder",
    "pytorch_build_memory_gib",
)
_PAIRS = (("pytorch_git_url", "pytorch_commit"), ("pytorch_source_url", "pytorch_source_sha256"))


def refuse_unfit_build(given: Given, where: str) -> None:
    """Raise SpecError for a build from source that cannot be, or would have no libuv."""
    if given["pytorch_source"] != "source":
        for name in _KEYS:
            if given.declares(name) and given[name] != {}:
                raise _error(
                    where, name, given[name], "is not read with pytorch_source = 'wheel'",
                    "only with pytorch_source = 'source'",
                    f"set pytorch_source = 'source', or remove {name}",
                )  # fmt: skip
        return
    _refuse_source(given, where)
    _refuse_others(given, where)
    for name, value in given["pytorch_flags"] or ():
        _refuse_flag(given, where, name, value)


def _error(
    where: str, key: str, value: object, problem: str, allowed: str, remedy: str
) -> SpecError:
    return SpecError(sentence(where, key, value, problem, allowed=allowed, remedy=remedy))


def _refuse_source(given: Given, where: str) -> None:
    """One source, and all of what names it."""
    for one, other in (*_PAIRS, *(pair[::-1] for pair in _PAIRS)):
        if given.declares(one) and not given.declares(other):
            problem, allowed = f"comes without {other}", "both or neither"
            raise _error(where, one, given[one], problem, allowed, f"set {other} too")
    named = [pair[0] for pair in _PAIRS if given.declares(pair[0])]
    if len(named) == 2:
        problem, allowed = "comes beside pytorch_git_url", "one source"
        value = given["pytorch_source_url"]
        remedy = "remove pytorch_source_url and pytorch_source_sha256"
        raise _error(where, "pytorch_source_url", value, problem, allowed, remedy)
    if not named:
        problem, allowed = "does not say from what", "a source at one commit, or one archive"
        remedy = "set pytorch_git_url and pytorch_commit"
        raise _error(where, "pytorch_source", "source", problem, allowed, remedy)


def _refuse_others(given: Given, where: str) -> None:
    if given["pytorch_lock"] == "required":
        problem = "asks for digests of published wheels, and torch is built here"
        remedy = "set pytorch_lock = 'if-there'"
        allowed = "'if-there' or 'ignore' with pytorch_source = 'source'"
        raise _error(where, "pytorch_lock", "required", problem, allowed, remedy)
    if given.stack.accelerator == "cpu":
        if given.declares("pytorch_archs"):
            problem = f"is not read with the cpu stack {given.stack.name}"
            remedy = "remove pytorch_archs"
            value = given["pytorch_archs"]
            raise _error(where, "pytorch_archs", value, problem, "no such key there", remedy)
        return
    if not given["cuda_toolkit"] or given["privilege"] == "none":
        problem, allowed = "needs nvcc, and no toolkit is installed here", "True with a build"
        key = "cuda_toolkit" if not given["cuda_toolkit"] else "privilege"
        remedy = "set cuda_toolkit = True and privilege = 'sudo', or pytorch_source = 'wheel'"
        raise _error(where, key, given[key], problem, allowed, remedy)
    if not given.declares("pytorch_archs") and given["gpu_model"] is None:
        problem, allowed = "does not say for which GPUs", "pytorch_archs, or a gpu_model"
        remedy = "set pytorch_archs = ['12.0'], or gpu_model"
        raise _error(where, "pytorch_source", "source", problem, allowed, remedy)


def _refuse_flag(given: Given, where: str, name: str, value: str) -> None:
    problem = None
    if name in NO_OP:
        problem = f"has no effect: {NO_OP[name]}"
    elif name in OTHER_KEYS:
        problem = f"is what {OTHER_KEYS[name]} says"
    elif name in WITHOUT_LIBUV and is_on(value) is WITHOUT_LIBUV[name]:
        problem = "builds a torch without libuv, with which torchrun cannot run"
    elif name == "USE_CUDA" and is_on(value) is (given.stack.accelerator == "cpu"):
        problem = f"contradicts the stack {given.stack.name}"
    if problem is None:
        return
    other = f", and set {OTHER_KEYS[name]}" if name in OTHER_KEYS else ""
    raise _error(
        where, "pytorch_flags", {name: value}, problem, "options that PyTorch reads and that"
        " contradict no other key", f"remove {name} from it{other}",
    )  # fmt: skip
