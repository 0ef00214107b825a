"""Is the compiler of nvcc and torch.compile there, and in nvcc's range? Judged, not touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, repair, report
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def compiler_name(spec: HostSpec) -> str:
    """Return the C++ compiler nvcc uses: the declared one's, else the distribution's."""
    declared = spec.cuda.host_compiler
    if declared is None:
        return "g++"
    name, _, major = declared.partition("-")
    return f"{'clang++' if name == 'clang' else 'g++'}-{major}"


def compiler_packages(spec: HostSpec, record: Record) -> list[str]:
    """Return the packages of the compilers that are missing; [] where none is."""
    cuda, declared = record.cuda, spec.cuda.host_compiler
    wanted = []
    if spec.cuda.toolkit and declared is not None and cuda.compiler is None:
        wanted += [declared] if declared.startswith("clang") else [declared, compiler_name(spec)]
    if spec.cuda.toolkit and cuda.gxx is False:
        wanted.append("g++")
    elif cuda.gcc is None:
        wanted.append("gcc")  # Triton and torch.compile need one at run time
    return wanted


def missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether all compilers are there; without root nothing is installed or refused."""
    if spec.accelerator != "nvidia":
        return
    rooted, cuda = spec.privilege == "sudo", record.cuda
    if rooted:
        for each in (cuda.gcc, cuda.compiler, cuda.gxx):
            known(each)
    if not (wanted := compiler_packages(spec, record)):
        return
    found, names = f"no {wanted[0]}", ", ".join(wanted)
    expected, packages = f"{names} for nvcc and torch.compile", (*wanted, "gcc", "g++")
    if rooted:
        yield repair(Id.CUDA_COMPILER_MISSING, found, expected, f"install {names}", packages)
        return
    action = "left alone, as nothing is installed with privilege = 'none'"
    command = f"sudo apt-get install {' '.join(wanted)}"
    yield report(Id.CUDA_COMPILER_MISSING, found, expected, action, command, packages)


def out_of_range(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether nvcc takes the compiler that is there."""
    if spec.accelerator != "nvidia" or not spec.cuda.toolkit or compiler_packages(spec, record):
        return
    declared = spec.cuda.host_compiler
    family = declared.partition("-")[0] if declared else "gcc"
    release = catalogue().cuda[str(spec.cuda.release)]
    bounds = release.clang if family == "clang" else release.gcc
    version = if_known(record.cuda.compiler if declared else record.cuda.gcc, None)
    if not bounds or not version or bounds[0] <= int(version.partition(".")[0]) <= bounds[1]:
        return
    good = f"{family}-{bounds[1]}"
    install = [good] if family == "clang" else [good, f"g++-{bounds[1]}"]
    yield report(
        Id.CUDA_COMPILER_OUT_OF_RANGE,
        f"{declared or family} is version {version}",
        f"{family} {bounds[0]} to {bounds[1]}, as CUDA {release.release} needs",
        f"nvcc would refuse it, so install another and declare host_compiler = '{good}'",
        f"sudo apt-get install {' '.join(install)}",
        (declared or family, f"{family}-{version.partition('.')[0]}"),
        stops=True,
    )
