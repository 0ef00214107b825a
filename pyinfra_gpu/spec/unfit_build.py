"""Keys of a build from source that do not fit each other, or that would build something else."""

from __future__ import annotations

from pyinfra_gpu.errors import SpecError, sentence
from pyinfra_gpu.spec.key import Given
from pyinfra_gpu.spec.pytorch_build import NO_OP, OTHER_KEYS, WITHOUT_LIBUV, is_on
from pyinfra_gpu.spec.values import is_nightly

_KEYS = (
    "pytorch_git_url",
    "pytorch_commit",
    "pytorch_source_url",
    "pytorch_source_sha256",
    "pytorch_archs",
    "pytorch_flags",
    "pytorch_nccl_url",
    "pytorch_cudnn",
    "pytorch_builder",
    "pytorch_build_memory_gib",
)
_PAIRS = (("pytorch_git_url", "pytorch_commit"), ("pytorch_source_url", "pytorch_source_sha256"))


def refuse_unfit_build(given: Given, where: str) -> None:
    """Raise SpecError for a build from source that cannot be, or would have no libuv."""
    _refuse_unfit_nightly(given, where)
    _refuse_unfit_fallback(given, where)
    source = given["pytorch_source"]
    if source != "source":
        for name in _KEYS:
            if given.declares(name) and given[name] != {}:
                raise _error(
                    where, name, given[name], f"is not read with pytorch_source = {source!r}",
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


def _refuse_unfit_nightly(given: Given, where: str) -> None:
    """A nightly is named by its date, and its files are the controller's."""
    version, nightly = given["pytorch_version"], given["pytorch_source"] == "nightly"
    if nightly and not is_nightly(version):
        problem, allowed = "names no nightly", "a release and a date"
        remedy = f"set pytorch_version = '{version}.dev20261120', with the nightly's own release"
        raise _error(where, "pytorch_version", version, problem, allowed, remedy)
    if is_nightly(version) and not nightly:
        problem, allowed = "is a nightly", "a final release"
        remedy = "set pytorch_source = 'nightly'"
        raise _error(where, "pytorch_version", version, problem, allowed, remedy)
    if nightly and given.declares("pytorch_wheels"):
        problem, allowed = "is not asked for a nightly", "an index with pytorch_source = 'nightly'"
        wheels = given["pytorch_wheels"]
        raise _error(where, "pytorch_wheels", wheels, problem, allowed, "remove pytorch_wheels")


def _refuse_unfit_fallback(given: Given, where: str) -> None:
    """A fallback is for what may fail to be had, and is something else."""
    version, build = given["pytorch_fallback"], given["pytorch_build"]
    if version is None:
        return
    key, release = "pytorch_fallback", given.known.torch.get(version)
    if given["pytorch_source"] == "wheel":
        problem, allowed = "is not read with pytorch_source = 'wheel'", "with a build or a nightly"
        raise _error(where, key, version, problem, allowed, "remove pytorch_fallback")
    if release is None or build not in release.builds:
        problem = f"is no release of which there is a known wheel with the build {build}"
        there = [name for name, each in given.known.torch.items() if build in each.builds]
        remedy = f"set pytorch_fallback = {there[-1]!r}" if there else "remove pytorch_fallback"
        raise _error(where, key, version, problem, ", ".join(there) or "None", remedy)
    if given["pytorch_lock"] == "required":
        problem = "would be installed without a lock, and pytorch_lock = 'required'"
        remedy = "remove pytorch_fallback, or set pytorch_lock = 'if-there'"
        raise _error(where, key, version, problem, "None with a required lock", remedy)
    if version == given["pytorch_version"]:
        problem = "is what the build is called too: nobody could tell which is installed"
        allowed = "another release than pytorch_version"
        raise _error(where, key, version, problem, allowed, "set another release")


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
        problem, allowed = "cannot be met: a built torch is in no lock", "'if-there' with a build"
        remedy = "remove pytorch_lock"
        raise _error(where, "pytorch_lock", "required", problem, allowed, remedy)
    if given.stack.accelerator == "cpu":
        for key in ("pytorch_archs", "pytorch_nccl_url", "pytorch_cudnn"):
            if given.declares(key):
                problem = f"is not read with the cpu stack {given.stack.name}"
                value, remedy = given[key], f"remove {key}"
                raise _error(where, key, value, problem, "no such key there", remedy)
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
