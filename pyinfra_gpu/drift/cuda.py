"""In what the CUDA toolkit, and the compiler it needs, are not as declared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import compilers, proof
from pyinfra_gpu.drift.finding import Finding, Findings, Id, Stage
from pyinfra_gpu.drift.lost_files import lost_files, packages_of, told
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.packages import manager_for
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import LostFile, NvidiaPackage, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.CUDA

NONE_DECLARED = "none is declared"
"""What this stage is where no toolkit is asked for: neither there nor missing."""

PROOF = (Id.CUDA_UNPROVEN,)
"""What `cuda.proven` repairs."""

PLAIN_PATH = (Id.CUDA_ALTERNATIVE_MOVED, Id.CUDA_LINK_BY_HAND)
"""What `cuda.chosen` repairs."""

TOOLKIT = (
    Id.CUDA_NOT_INSTALLED,
    Id.CUDA_VERSION_DIFFERS,
    Id.CUDA_HALF_REMOVED,
    Id.CUDA_NOT_FROM_PACKAGE,
    Id.CUDA_COMPILER_MISSING,
    Id.CUDA_COMPILER_OUT_OF_RANGE,
    Id.CUDA_METAPACKAGE_INSTALLED,
    Id.CUDA_NVCC_SHADOWED,
    Id.CUDA_SHELL_PATH,
)
"""What `cuda.installed` repairs."""

PLAIN = "/usr/local/cuda"
"""The path that is the same for every release, kept by update-alternatives."""

_COMPILERS = re.compile(r"(cuda-(nvcc|nvvm|crt)|libnvvm)-\d+-\d+")


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what the toolkit's part of a host is not as declared; [] on cpu stacks.

    + spec: what is declared
    + record: what the host looks like; what it would not tell is no deviation (see `needed`)
    """
    if spec.accelerator != "nvidia":
        return []
    found = [*compilers.judge(spec, record), *_shells(spec, record)]
    if spec.cuda.toolkit:
        found = [
            *_toolkit(spec, record),
            *found,
            *_plain_path(spec, record),
            *_shadowed(spec, record),
            *_metapackage(record),
            *_unproven(spec, record),
        ]
    return found


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without; it refuses where one is `Unknown`."""
    if spec.accelerator != "nvidia" or spec.privilege == "none":
        return ()
    cuda = record.cuda
    compiler = (cuda.gcc, cuda.compiler, cuda.gxx)
    if not spec.cuda.toolkit:
        return compiler
    return (
        *compiler,
        record.nvidia.packages,
        cuda.toolkits,
        cuda.missing,
        cuda.nvcc,
        *_path(record),
    )


def _path(record: Record) -> tuple[object, ...]:
    return (record.cuda.link, record.cuda.alternative)


def summary(spec: HostSpec, record: Record) -> str:
    """Say in a few words what the toolkit is where nothing differs."""
    del record
    if spec.accelerator != "nvidia":
        return NONE_DECLARED
    return f"CUDA toolkit {spec.cuda.release}" if spec.cuda.toolkit else NONE_DECLARED


def home(spec: HostSpec) -> str:
    """Return the declared toolkit's folder, e.g. /usr/local/cuda-13.0."""
    return f"{PLAIN}-{spec.cuda.release}"


def package(spec: HostSpec) -> str:
    """Return the declared toolkit's package, e.g. cuda-toolkit-13-0."""
    return catalogue().toolkit_package(str(spec.cuda.release))


def of_release(spec: HostSpec, record: Record) -> list[NvidiaPackage]:
    """Return the installed packages of the declared release, in the order of their names."""
    packages = record.nvidia.packages
    if isinstance(packages, Unknown):
        return []
    ending = f"-{str(spec.cuda.release).replace('.', '-')}"
    return [each for each in packages if each.name.partition(":")[0].endswith(ending)]


def incomplete(spec: HostSpec, record: Record) -> list[str]:
    """Return the declared release's packages that are only partly installed."""
    return [each.name for each in of_release(spec, record) if not each.complete]


def damaged(spec: HostSpec, record: Record) -> list[str]:
    """Return the packages whose files are gone, or are not what they brought."""
    return packages_of(_lost(spec, record))


def _lost(spec: HostSpec, record: Record) -> tuple[LostFile, ...]:
    ending = f"-{str(spec.cuda.release).replace('.', '-')}"
    return lost_files(record, lambda name: name.endswith(ending))


def toolkit_owed(spec: HostSpec, record: Record, found: Findings) -> bool:
    """Tell whether the toolkit's own package is to be installed for these findings.

    An installation that was cut off has left parts, which are told as such, and not that package.
    """
    if found.of(Id.CUDA_HALF_REMOVED):
        return record.nvidia.package(package(spec)) is None
    return bool(found.of(Id.CUDA_NOT_INSTALLED, Id.CUDA_VERSION_DIFFERS))


def nvcc_packages(spec: HostSpec, record: Record) -> list[str]:
    """Return the declared release's packages that nvcc is made of; its own even if it is gone.

    A part that was forced off leaves the toolkit's package there, with a dependency unmet.
    """
    names = [each.name for each in of_release(spec, record)]
    own = f"cuda-nvcc-{str(spec.cuda.release).replace('.', '-')}"
    return [own, *(name for name in names if _COMPILERS.fullmatch(name) and name != own)]


def _toolkit(spec: HostSpec, record: Record) -> list[Finding]:
    release, cuda = str(spec.cuda.release), record.cuda
    packages = of_release(spec, record)
    if isinstance(record.nvidia.packages, Unknown) or isinstance(cuda.toolkits, Unknown):
        return []
    if not packages:
        return [_foreign(spec, record) if release in cuda.toolkits else _absent(spec)]
    broken = _broken(spec, record)
    if broken:
        return [
            _of_toolkit(
                Id.CUDA_HALF_REMOVED, spec, found=broken, action="install its packages anew"
            )
        ]
    if (main := record.nvidia.package(package(spec))) is None:
        return [_absent(spec, f"only parts of CUDA {release} ({packages[0].name} ...)")]
    wanted = spec.cuda.version
    if wanted is None or re.split(r"[-+~]", main.version)[0] == wanted:
        return []
    return [
        _of_toolkit(
            Id.CUDA_VERSION_DIFFERS,
            spec,
            found=f"{main.name} {main.version}",
            expected=f"version {wanted}",
            action=f"install {wanted}",
        )
    ]


def _broken(spec: HostSpec, record: Record) -> str | None:
    """Say what is missing of an installed toolkit, or None."""
    cuda, release = record.cuda, spec.cuda.release
    if half := incomplete(spec, record):
        return f"{', '.join(half)} not completely installed"
    # Parts alone (somebody installed just the runtime) are not a broken toolkit.
    if record.nvidia.package(package(spec)) is None:
        return None
    if isinstance(cuda.missing, tuple) and cuda.missing:
        return f"{', '.join(cuda.missing)} missing in {home(spec)}"
    if lost := _lost(spec, record):
        return told(lost)
    if isinstance(cuda.nvcc, str) and cuda.nvcc != release:
        return f"the nvcc in {home(spec)} is of release {cuda.nvcc}"
    return None


def _absent(spec: HostSpec, found: str = "no CUDA toolkit {release}") -> Finding:
    return _of_toolkit(
        Id.CUDA_NOT_INSTALLED,
        spec,
        found=found.format(release=spec.cuda.release),
        action=f"install {package(spec)}",
    )


def _of_toolkit(
    id_: Id, spec: HostSpec, *, found: str, action: str, expected: str | None = None
) -> Finding:
    ending = f"-{str(spec.cuda.release).replace('.', '-')}"
    return Finding(
        id=id_,
        found=found,
        expected=expected or f"the CUDA toolkit {spec.cuda.version or spec.cuda.release}",
        effect="repair",
        action=action,
        packages=(package(spec), f"cuda-nvcc{ending}", f"cuda-cudart{ending}"),
    )


def _foreign(spec: HostSpec, record: Record) -> Finding:
    """A toolkit that no package brought belongs to somebody: it is used, never overwritten."""
    state = "incomplete, and " if record.cuda.missing else ""
    return Finding(
        id=Id.CUDA_NOT_FROM_PACKAGE,
        found=f"{home(spec)} is {state}of no package",
        expected=f"the toolkit of {package(spec)}",
        effect="report",
        action="left alone, since installing over it would replace somebody's files; to get the"
        " package's, move it away",
        command=f"sudo mv {home(spec)} {home(spec)}.before",
        stops=bool(record.cuda.missing),
    )


def _plain_path(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge /usr/local/cuda: a link of update-alternatives that leads to the declared release."""
    link, chosen, wanted = record.cuda.link, record.cuda.alternative, home(spec)
    if isinstance(link, Unknown) or isinstance(chosen, Unknown):
        return []
    if link == PLAIN:
        return [_folder_in_the_way(wanted)]
    by_hand = link is not None and (chosen is None or _differ(link, chosen))
    if by_hand:
        id_, found = Id.CUDA_LINK_BY_HAND, f"{PLAIN} is a link to {link} that somebody made"
        action = f"keep that link under another name and choose {wanted} by update-alternatives"
    elif chosen is not None and chosen.rstrip("/") != wanted:
        id_, found = Id.CUDA_ALTERNATIVE_MOVED, f"{PLAIN} is {chosen}"
        action = f"choose {wanted} by update-alternatives"
    elif link is None and str(spec.cuda.release) in _toolkits(record):
        id_, found = Id.CUDA_ALTERNATIVE_MOVED, f"there is no {PLAIN}"
        action = f"choose {wanted} by update-alternatives"
    else:
        return []  # as declared, or it comes with the toolkit
    return [
        Finding(
            id=id_,
            found=found,
            expected=f"{wanted} by update-alternatives",
            effect="repair",
            action=action,
            packages=("cuda-toolkit-*",),
        )
    ]


def _differ(link: str, chosen: str) -> bool:
    """Tell whether the link leads elsewhere than the alternative, which it should go through."""
    # Where the chosen folder is gone, the link leads as far as update-alternatives' own link.
    return link.rstrip("/") not in (chosen.rstrip("/"), "/etc/alternatives/cuda")


def _toolkits(record: Record) -> tuple[str, ...]:
    return record.cuda.toolkits if isinstance(record.cuda.toolkits, tuple) else ()


def _folder_in_the_way(wanted: str) -> Finding:
    return Finding(
        id=Id.CUDA_LINK_BY_HAND,
        found=f"{PLAIN} is a folder",
        expected=f"a link to {wanted} by update-alternatives",
        effect="report",
        action="left alone, since what is in it may be somebody's only copy; move it away",
        command=f"sudo mv {PLAIN} {PLAIN}.before",
        stops=True,
    )


def _shadowed(spec: HostSpec, record: Record) -> list[Finding]:
    path = record.cuda.nvcc_on_path
    if not isinstance(path, str) or path.startswith(f"{home(spec)}/"):
        return []
    return [
        Finding(
            id=Id.CUDA_NVCC_SHADOWED,
            found=f"{path} is the first nvcc on PATH",
            expected=f"none, or the one in {home(spec)}/bin",
            effect="report",
            action="left alone, since somebody put it there; see whose it is",
            command=manager_for(record.system.os_id).owner_by_hand(path),
            packages=("nvidia-cuda-toolkit", "cuda-nvcc-*"),
        )
    ]


_FOLDER = re.compile(r"/cuda(?:-(\d+\.\d+))?(?![\w-])")


def _shells(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge what login shells are told: what runs there does not get what was proven.

    LD_LIBRARY_PATH comes before the libraries that torch brings, whichever CUDA it names.
    """
    lines = record.cuda.shell_lines
    wrong = [] if isinstance(lines, Unknown) else [each for each in lines if _misleads(spec, each)]
    if not wrong:
        return []
    file, _, line = wrong[0].partition(":")
    return [
        Finding(
            id=Id.CUDA_SHELL_PATH,
            found=f"login shells get another CUDA from {file}: {line.strip()}",
            expected="no folder of another CUDA in a path, and none in LD_LIBRARY_PATH",
            effect="report",
            action="left alone, since somebody wrote that; take the line out, and log in again",
            command=f"grep -n cuda {file}",
        )
    ]


def _misleads(spec: HostSpec, row: str) -> bool:
    line = row.partition(":")[2]
    if "LD_LIBRARY_PATH" in line:
        return True
    named = {folder[1] for folder in _FOLDER.finditer(line)} - {None, spec.cuda.release}
    return bool(named) and spec.cuda.toolkit


def _metapackage(record: Record) -> list[Finding]:
    """`cuda` and `cuda-13-0` depend on a driver of their own choice; the toolkit alone does not."""
    packages = record.nvidia.packages
    if isinstance(packages, Unknown):
        return []
    names = [each.name for each in packages if re.fullmatch(r"cuda(-\d+){0,2}", each.name)]
    if not names:
        return []
    return [
        Finding(
            id=Id.CUDA_METAPACKAGE_INSTALLED,
            found=f"{', '.join(names)} installed",
            expected="the toolkit's package, which brings no driver",
            effect="report",
            action="left alone, but its next upgrade may bring another driver",
            command=manager_for(record.system.os_id).remove_by_hand(names),
            packages=tuple(names),
        )
    ]


def _unproven(spec: HostSpec, record: Record) -> list[Finding]:
    now = state(spec, record)
    unproven = proof.proven_state(record.cuda.proof, proof.fingerprint(now), now)
    if unproven is None:
        return []
    archs = ", ".join(f"sm_{arch}" for arch in spec.cuda.archs)
    return [
        Finding(
            id=Id.CUDA_UNPROVEN,
            found=f"that nvcc works: {unproven}",
            expected=f"a kernel compiled for {archs} with what is installed now",
            effect="repair",
            action=f"compile for {archs}",
        )
    ]


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: toolkit, compiler, what is compiled."""
    return {
        "the toolkit": sorted(f"{each.name} {each.version}" for each in of_release(spec, record)),
        "nvcc": str(record.cuda.nvcc),
        "cuda_host_compiler": compilers.compiler_name(spec),
        "its version": str(record.cuda.compiler if spec.cuda.host_compiler else record.cuda.gcc),
        "cuda_archs": list(spec.cuda.archs),
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("cuda"),
    }
