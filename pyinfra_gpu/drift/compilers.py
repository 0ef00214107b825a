"""Is the compiler of nvcc and torch.compile there, and in nvcc's range? Judged, not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id
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


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is not as declared of the compilers."""
    wanted = compiler_packages(spec, record)
    if not wanted:
        return _out_of_range(spec, record)
    rooted = spec.privilege == "sudo"
    by_hand = f"sudo apt-get install {' '.join(wanted)}"
    return [
        Finding(
            id=Id.CUDA_COMPILER_MISSING,
            found=f"no {wanted[0]}",
            expected=f"{', '.join(wanted)} for nvcc and torch.compile",
            effect="repair" if rooted else "report",
            action=f"install {', '.join(wanted)}"
            if rooted
            else "left alone, as nothing is installed with privilege = 'none'",
            command=None if rooted else by_hand,
            packages=(*wanted, "gcc", "g++"),
        )
    ]


def _out_of_range(spec: HostSpec, record: Record) -> list[Finding]:
    if not spec.cuda.toolkit:
        return []
    declared = spec.cuda.host_compiler
    family = declared.partition("-")[0] if declared else "gcc"
    release = catalogue().cuda[str(spec.cuda.release)]
    bounds = release.clang if family == "clang" else release.gcc
    version = record.cuda.compiler if declared else record.cuda.gcc
    if bounds is None or not isinstance(version, str):
        return []
    if bounds[0] <= int(version.partition(".")[0]) <= bounds[1]:
        return []
    good = f"{family}-{bounds[1]}"
    install = [good] if family == "clang" else [good, f"g++-{bounds[1]}"]
    return [
        Finding(
            id=Id.CUDA_COMPILER_OUT_OF_RANGE,
            found=f"{declared or family} is version {version}",
            expected=f"{family} {bounds[0]} to {bounds[1]}, as CUDA {release.release} needs",
            effect="report",
            action=f"nvcc would refuse it, so install another and declare host_compiler = '{good}'",
            command=f"sudo apt-get install {' '.join(install)}",
            packages=(declared or family, f"{family}-{version.partition('.')[0]}"),
            stops=True,
        )
    ]
