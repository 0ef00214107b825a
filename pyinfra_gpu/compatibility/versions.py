"""Rules about exact versions: a driver of its branch, a toolkit of its release and its code."""

from __future__ import annotations

from packaging.version import Version

from pyinfra_gpu.compatibility.case import Case, Change, Problem
from pyinfra_gpu.compatibility.hardware import branch_changes, cuda_changes


def driver_version_of_other_branch(case: Case) -> Problem | None:
    """A branch and a version that is not of it contradict each other; neither is a guess."""
    version, branch = case.spec.driver.version, case.spec.driver.branch
    if version is None or branch is None or Version(version).major == branch:
        return None
    changes: list[Change] = []
    if Version(version).major in case.known.driver_branches:
        changes.append((("driver_branch", Version(version).major),))
    return Problem(
        key="driver_version",
        value=version,
        found=f"is not a version of branch {branch}",
        allowed=f"a version that begins with {branch}, or None",
        changes=(*changes, (("driver_version", None),)),
    )


def driver_version_too_old(case: Case) -> Problem | None:
    """Below its minimum a CUDA release does not start, or cannot compile at run time."""
    version, minimum = case.spec.driver.version, case.spec.driver.minimum
    if version is None or minimum is None or case.cuda is None:
        return None
    if Version(version) >= Version(minimum):
        return None
    return Problem(
        key="driver_version",
        value=version,
        found=f"is too old for CUDA {case.cuda.release}",
        allowed=f"{minimum} or newer with CUDA {case.cuda.release}",
        changes=((("driver_version", None),), *branch_changes(case), *cuda_changes(case)),
    )


def cuda_version_of_other_release(case: Case) -> Problem | None:
    """A toolkit package carries its release in its name, so a version of another is not in it."""
    version, release = case.spec.cuda.version, case.spec.cuda.release
    if version is None or release is None or version.startswith(f"{release}."):
        return None
    changes: list[Change] = []
    named = version.rpartition(".")[0]
    if named in case.known.cuda:
        changes.append((("cuda_release", named),))
    return Problem(
        key="cuda_version",
        value=version,
        found=f"is not a version of CUDA {release}",
        allowed=f"a version that begins with {release}., or None",
        changes=(*changes, (("cuda_version", None),)),
    )


def cuda_cannot_make_code(case: Case) -> Problem | None:
    """nvcc stops at an architecture it does not know, and at one it no longer knows."""
    if case.toolkit is None:
        return None
    archs = case.spec.cuda.archs
    made = [arch for arch in archs if arch in case.toolkit.archs]
    missing = [arch for arch in archs if arch not in case.toolkit.archs]
    if not missing:
        return None
    less: Change = (("cuda_archs", _capabilities(made)),)
    return Problem(
        key="cuda_archs",
        value=_capabilities(archs),
        found=f"holds {', '.join(_capabilities(missing))}, for which CUDA {case.toolkit.release} "
        "makes no code",
        allowed=f"{', '.join(_capabilities(case.toolkit.archs))} with CUDA {case.toolkit.release}",
        changes=(*cuda_changes(case), less if made else (("cuda_archs", None),)),
    )


def build_cannot_make_code(case: Case) -> Problem | None:
    """A build stops at the first file for an architecture that its nvcc does not know."""
    building = case.spec.pytorch.building
    if building is None or case.cuda is None:
        return None
    known = _capabilities(case.cuda.archs)
    missing = [arch for arch in building.archs if arch not in known]
    if not missing:
        return None
    return Problem(
        key="pytorch_archs",
        value=list(building.archs),
        found=f"holds {', '.join(missing)}, for which CUDA {case.cuda.release} makes no code",
        allowed=f"{', '.join(known)} with CUDA {case.cuda.release}",
        changes=_gpus_own(case),
    )


def build_without_gpu_code(case: Case) -> Problem | None:
    """Hours of compiling would end in a torch that launches no kernel on the host's GPUs."""
    building, capability = case.spec.pytorch.building, case.capability
    if building is None or case.cuda is None or not case.nvidia or capability is None:
        return None
    if any(_runs_on(arch, str(capability)) for arch in building.archs):
        return None
    return Problem(
        key="pytorch_archs",
        value=list(building.archs),
        found=f"makes no code for {case.gpu_name}",
        allowed=f"{capability} among them",
        changes=_gpus_own(case),
    )


def _gpus_own(case: Case) -> tuple[Change, ...]:
    capability = case.capability
    return () if capability is None else ((("pytorch_archs", [str(capability)]),),)


def _runs_on(arch: str, capability: str) -> bool:
    """Tell whether finished code runs there: on the same major version, from its minor one on."""
    made, there = (tuple(map(int, each.split("."))) for each in (arch, capability))
    return made[0] == there[0] and made[1] <= there[1]


def build_of_other_cuda(case: Case) -> Problem | None:
    """A wheel that is built here is of the toolkit that builds it, whatever it is called."""
    if case.spec.pytorch.building is None or case.cuda is None or case.simulated:
        return None
    right = f"cu{case.cuda.release.replace('.', '')}"
    if case.spec.pytorch.build == right:
        return None
    return Problem(
        key="pytorch_build",
        value=case.spec.pytorch.build,
        found=f"would be built with CUDA {case.cuda.release}",
        allowed=f"{right} with that toolkit",
        advice=f"set pytorch_build = {right!r}",
    )


def _capabilities(archs: list[int] | tuple[int, ...]) -> list[str]:
    return [f"{arch // 10}.{arch % 10}" for arch in archs]
