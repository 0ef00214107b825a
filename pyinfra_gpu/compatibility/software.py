"""Rules about software: stack, torch release and build, index, Python, C library, compiler."""

from __future__ import annotations

import re

from packaging.version import Version

from pyinfra_gpu.compatibility.case import Case, Change, Problem
from pyinfra_gpu.errors import nearest


def torch_changes(case: Case) -> tuple[Change, ...]:
    """Return every torch to ask for instead, the least change first.

    That is: another build of the same release; the stacks' own; then all releases, newest first,
    each with the present build before the one the package index serves before the rest.
    """
    now, known = case.spec.pytorch, case.known
    for_cpu = case.simulated or not case.nvidia
    own = [
        (stack.torch.version, stack.torch.build)
        for stack in known.stacks.values()
        if (stack.torch.build == "cpu") == for_cpu
    ]
    every = [
        (version, build)
        for version in sorted(known.torch, key=Version, reverse=True)
        for build in sorted(
            known.torch[version].builds,
            key=lambda build: (build != now.build, not known.serves(version, build)),
        )
        if (build == "cpu") == for_cpu
    ]
    same = [pair for pair in (*own, *every) if pair[0] == now.version]
    return tuple(_difference(case, *pair) for pair in dict.fromkeys((*same, *own, *every)))


def _difference(case: Case, version: str, build: str) -> Change:
    now, change = case.spec.pytorch, []
    if version != now.version:
        change.append(("pytorch_version", version))
    if build != now.build:
        change.append(("pytorch_build", build))
    return tuple(change)


def cpu_stack_with_gpus(case: Case) -> Problem | None:
    """A cpu stack has no driver, so the GPUs it counts would never be used."""
    if case.nvidia or case.spec.gpu.count == 0:
        return None
    return Problem(
        key="gpu_count",
        value=case.spec.gpu.count,
        found=f"counts GPUs that the cpu stack {case.spec.stack} would not use",
        allowed="0 with a cpu stack",
        changes=((("gpu_count", 0),),),
    )


def nvidia_stack_without_gpus(case: Case) -> Problem | None:
    """A host without GPUs is declared by its stack, so that a missing GPU is never taken for a
    choice.
    """
    if not case.nvidia or case.spec.gpu.count > 0:
        return None
    cpu = next(name for name, stack in case.known.stacks.items() if stack.accelerator == "cpu")
    return Problem(
        key="gpu_count",
        value=0,
        found=f"leaves the NVIDIA stack {case.spec.stack} without a GPU",
        allowed="1 to 16 with an NVIDIA stack",
        changes=((("stack", cpu),), (("gpu_count", 2),)),
        advice="set gpu_count to the number of GPUs",
    )


def cpu_build_on_nvidia_stack(case: Case) -> Problem | None:
    """The CPU build of torch cannot use a GPU; where the GPU is only simulated, it stands in."""
    if not case.nvidia or case.spec.pytorch.build != "cpu" or case.simulated:
        return None
    return Problem(
        key="pytorch_build",
        value="cpu",
        found=f"cannot use the GPUs of the NVIDIA stack {case.spec.stack}",
        allowed="a cuNNN build with an NVIDIA stack",
        changes=torch_changes(case),
    )


def cuda_build_on_cpu_stack(case: Case) -> Problem | None:
    """A CUDA build on a host without GPU is gigabytes for nothing."""
    if case.nvidia or case.spec.pytorch.build == "cpu":
        return None
    return Problem(
        key="pytorch_build",
        value=case.spec.pytorch.build,
        found=f"needs a GPU, and the stack {case.spec.stack} is for hosts without one",
        allowed="'cpu' with a cpu stack",
        changes=torch_changes(case),
    )


def torch_release_unknown(case: Case) -> Problem | None:
    """A release we know nothing about cannot be checked."""
    if case.release is not None:
        return None
    asked, known = case.spec.pytorch.version, case.known.torch
    older = [version for version in known if Version(version) <= Version(asked)]
    close = max(older, key=Version) if older else nearest(asked, known)
    first: tuple[Change, ...] = ((("pytorch_version", close),),) if close else ()
    return Problem(
        key="pytorch_version",
        value=asked,
        found="is not a torch release this project knows",
        allowed=", ".join(sorted(known, key=Version)),
        changes=(*first, *torch_changes(case)),
    )


def build_not_published(case: Case) -> Problem | None:
    """Each torch release is built for a few CUDA releases only."""
    release, build = case.release, case.spec.pytorch.build
    if release is None or build in release.builds:
        return None
    return Problem(
        key="pytorch_build",
        value=build,
        found=f"is not published for torch {release.version}",
        allowed=f"{', '.join(release.builds)} with torch {release.version}",
        changes=torch_changes(case),
    )


def python_below_torch_minimum(case: Case) -> Problem | None:
    """torch has no wheel for an older Python."""
    if case.release is None or case.python is None:
        return None
    oldest, newest = case.release.python
    if Version(case.python) >= Version(oldest):
        return None
    return Problem(
        key="pytorch_python",
        value=case.spec.pytorch.python,
        found=f"is Python {case.python}, too old for torch {case.release.version}",
        allowed=f"Python {oldest} to {newest} with torch {case.release.version}",
        changes=(*torch_changes(case), (("pytorch_python", oldest),)),
        advice=f"install Python {oldest} or newer on the host and set pytorch_python to it",
    )


def python_above_torch_maximum(case: Case) -> Problem | None:
    """torch has no wheel yet for a newer Python."""
    if case.release is None or case.python is None:
        return None
    oldest, newest = case.release.python
    if Version(case.python).release[:2] <= Version(newest).release[:2]:
        return None
    return Problem(
        key="pytorch_python",
        value=case.spec.pytorch.python,
        found=f"is Python {case.python}, too new for torch {case.release.version}",
        allowed=f"Python {oldest} to {newest} with torch {case.release.version}",
        changes=((("pytorch_python", newest),), *torch_changes(case)),
    )


def index_for_other_build(case: Case) -> Problem | None:
    """PyTorch's indexes hold one build each; a foreign one would win over the declared build."""
    torch = case.spec.pytorch
    for key, url in (
        ("pytorch_index_url", torch.index_url),
        ("pytorch_extra_index_url", torch.extra_index_url),
    ):
        named = re.search(r"/whl/(?:nightly/|test/)?(cpu|cu\d{3})/?$", url or "")
        if named and named[1] != torch.build:
            return Problem(
                key=key,
                value=url,
                found=f"holds the build {named[1]}, and pytorch_build is {torch.build!r}",
                allowed=f"an index of {torch.build}",
                changes=(
                    (("pytorch_build", named[1]),),
                    ((key, case.known.index_of(torch.build)),),
                ),
            )
    return None


def package_index_serves_other_build(case: Case) -> Problem | None:
    """The package index has one build per release and machine; not the same one on every
    machine.
    """
    torch, machine = case.spec.pytorch, case.machine
    if torch.local_version or machine is None or case.release is None:
        return None
    if torch.index_url is not None or torch.extra_index_url is not None:
        return None
    served = case.release.pypi.get(machine)
    if served == torch.build or not case.wheels():
        return None
    return Problem(
        key="pytorch_build",
        value=torch.build,
        found=f"is not what the package index serves for torch {torch.version} on {machine}"
        + (f": that is {served}" if served else ""),
        allowed=f"an index of {torch.build} for {machine}",
        changes=((("pytorch_index_url", case.known.index_of(torch.build)),),),
    )


def machine_without_wheel(case: Case) -> Problem | None:
    """torch is published for few machines."""
    machines = case.known.wheel_archs.get(case.spec.pytorch.build)
    if case.machine is None or machines is None or case.machine in machines:
        return None
    return Problem(
        key="pytorch_build",
        value=case.spec.pytorch.build,
        found=f"has no wheel for the machine {case.machine}",
        allowed=f"{' or '.join(machines)} with {case.spec.pytorch.build}",
        changes=torch_changes(case),
        advice=f"use a host whose machine is {' or '.join(machines)}",
    )


def c_library_too_old(case: Case) -> Problem | None:
    """A manylinux_2_28 wheel does not load on an older C library."""
    glibc = None if case.facts is None else case.facts.glibc
    if glibc is None or case.release is None or case.release.glibc is None:
        return None
    if Version(glibc) >= Version(case.release.glibc):
        return None
    return Problem(
        key="pytorch_version",
        value=case.spec.pytorch.version,
        found=f"needs glibc {case.release.glibc}, and the host has {glibc}",
        allowed=f"glibc {case.release.glibc} or newer",
        advice="install a newer distribution on the host, Debian 11 or Ubuntu 22.04 at least",
    )


def compiler_too_new(case: Case) -> Problem | None:
    """nvcc stops at a host compiler newer than it knows."""
    bounds = _compiler_bounds(case)
    if bounds is None or case.compiler is None or case.compiler[1] <= bounds[1]:
        return None
    return _compiler_problem(case, bounds, "too new", bounds[1])


def compiler_too_old(case: Case) -> Problem | None:
    """nvcc needs the language level of newer host compilers."""
    bounds = _compiler_bounds(case)
    if bounds is None or case.compiler is None or case.compiler[1] >= bounds[0]:
        return None
    return _compiler_problem(case, bounds, "too old", bounds[1])


def _compiler_bounds(case: Case) -> tuple[int, int] | None:
    if case.toolkit is None or case.compiler is None:
        return None
    return case.toolkit.clang if case.compiler[0] == "clang" else case.toolkit.gcc


def _compiler_problem(case: Case, bounds: tuple[int, int], what: str, good: int) -> Problem | None:
    if case.toolkit is None or case.compiler is None:
        return None
    name, major = case.compiler
    declared = case.spec.cuda.host_compiler
    return Problem(
        key="host_compiler",
        value=declared,
        found=f"{'is' if declared else f'leaves the host its own {name} {major}, which is'} "
        f"{what} for CUDA {case.toolkit.release}",
        allowed=f"{name} {bounds[0]} to {bounds[1]} with CUDA {case.toolkit.release}",
        changes=((("host_compiler", f"{name}-{good}"),),),
    )
