"""In what the CUDA toolkit, and the compiler it needs, are not as declared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyinfra_gpu.drift.finding import Finding, Id, Stage, repair, report
from pyinfra_gpu.drift.layout import owner_name
from pyinfra_gpu.drift.lost_files import lost_files, packages_of, told
from pyinfra_gpu.drift.proof import outdated
from pyinfra_gpu.drift.rules import Rules, if_known, known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import LostFile, NvidiaPackage, Record
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.packages import apt
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue

STAGE = Stage.CUDA

NONE_DECLARED = "none is declared"
"""What this stage is where no toolkit is asked for: neither there nor missing."""

PLAIN = "/usr/local/cuda"
"""The path that is the same for every release, kept by update-alternatives."""

_COMPILERS = re.compile(r"(cuda-(nvcc|nvvm|crt)|libnvvm)-\d+-\d+")


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
    packages = if_known(record.nvidia.packages, ())
    return [each for each in packages if each.name.partition(":")[0].endswith(_ending(spec))]


def _ending(spec: HostSpec) -> str:
    """Return how the names of a release's packages end, e.g. "-13-0"."""
    return f"-{str(spec.cuda.release).replace('.', '-')}"


def damaged(spec: HostSpec, record: Record) -> list[str]:
    """Return the declared release's packages that are half installed, or whose files differ."""
    half = [each.name for each in of_release(spec, record) if not each.complete]
    return [*packages_of(_lost(spec, record)), *half]


def _lost(spec: HostSpec, record: Record) -> tuple[LostFile, ...]:
    return lost_files(record, lambda name: name.endswith(_ending(spec)))


def lacks_package(spec: HostSpec, record: Record) -> bool:
    """Tell whether the toolkit's own package is missing, or of another version than declared.

    An installation that was cut off may have left parts of it, and not that package.
    """
    main, wanted = record.nvidia.package(package(spec)), spec.cuda.version
    return main is None or wanted not in (None, re.split(r"[-+~]", main.version)[0])


def nvcc_packages(spec: HostSpec, record: Record) -> list[str]:
    """Return the declared release's packages that nvcc is made of; its own even if it is gone.

    A part that was forced off leaves the toolkit's package there, with a dependency unmet.
    """
    names = [each.name for each in of_release(spec, record)]
    own = f"cuda-nvcc{_ending(spec)}"
    return [own, *(name for name in names if _COMPILERS.fullmatch(name) and name != own)]


def _toolkit(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the packages of the declared release: there, whole, of the declared version."""
    if not spec.cuda.toolkit:
        return
    release, toolkits = str(spec.cuda.release), known(record.cuda.toolkits)
    known(record.nvidia.packages)
    parts, main = of_release(spec, record), record.nvidia.package(package(spec))
    expected = f"the CUDA toolkit {spec.cuda.version or release}"
    packages = (package(spec), f"cuda-nvcc{_ending(spec)}", f"cuda-cudart{_ending(spec)}")
    if not parts and release in toolkits:
        yield _of_no_package(spec, record)
    elif parts and (wrong := broken(spec, record)):
        action = "reinstall its packages"
        yield repair(Id.CUDA_TOOLKIT_DIFFERS, wrong, expected, action, packages)
    elif main is None:
        found = f"only parts of CUDA {release} ({parts[0].name} ...)" if parts else None
        found, action = found or f"no CUDA toolkit {release}", f"install {package(spec)}"
        yield repair(Id.CUDA_NOT_INSTALLED, found, expected, action, packages)
    elif lacks_package(spec, record):
        found, wanted = f"{main.name} {main.version}", str(spec.cuda.version)
        action = f"install {wanted}"
        yield repair(Id.CUDA_TOOLKIT_DIFFERS, found, f"version {wanted}", action, packages)


def broken(spec: HostSpec, record: Record) -> str | None:
    """Say what is missing of an installed toolkit, or None."""
    cuda, release = record.cuda, spec.cuda.release
    missing, nvcc = known(cuda.missing), known(cuda.nvcc)
    if half := [each.name for each in of_release(spec, record) if not each.complete]:
        return f"{', '.join(half)} not completely installed"
    # Parts alone (somebody installed just the runtime) are not a broken toolkit.
    if record.nvidia.package(package(spec)) is None:
        return None
    if missing:
        return f"{', '.join(missing)} missing in {home(spec)}"
    if lost := _lost(spec, record):
        return told(lost)
    if nvcc is not None and nvcc != release:
        return f"the nvcc in {home(spec)} is of release {nvcc}"
    return None


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether the owner can use the toolkit; one made under umask 077 is root's alone."""
    if not spec.cuda.toolkit or known(record.cuda.nvcc) is not None:
        return
    if of_release(spec, record) and broken(spec, record) is None:
        yield report(
            Id.CUDA_TOOLKIT_DIFFERS,
            f"{owner_name(spec, record)} cannot run {home(spec)}/bin/nvcc, which is there",
            "a toolkit that everybody may read and run",
            "left alone, since somebody may have chosen those modes: open them",
            f"sudo chmod -R a+rX {home(spec)}",
            stops=True,
        )


def _of_no_package(spec: HostSpec, record: Record) -> Finding:
    """A toolkit that no package brought belongs to somebody: it is used, never overwritten."""
    missing = bool(known(record.cuda.missing))
    return report(
        Id.CUDA_TOOLKIT_DIFFERS,
        f"{home(spec)} is {'incomplete, and ' if missing else ''}of no package",
        f"the toolkit of {package(spec)}",
        "left alone, since installing over it would replace somebody's files; to get the"
        " package's, move it away",
        f"sudo mv {home(spec)} {home(spec)}.before",
        stops=missing,
    )


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


def _compiler_missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
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
        yield repair(Id.CUDA_COMPILER_DIFFERS, found, expected, f"install {names}", packages)
        return
    action = "left alone, as nothing is installed with privilege = 'none'"
    command = f"sudo apt-get install {' '.join(wanted)}"
    yield report(Id.CUDA_COMPILER_DIFFERS, found, expected, action, command, packages)


def _compiler_out_of_range(spec: HostSpec, record: Record) -> Iterator[Finding]:
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
        Id.CUDA_COMPILER_DIFFERS,
        f"{declared or family} is version {version}",
        f"{family} {bounds[0]} to {bounds[1]}, as CUDA {release.release} needs",
        f"nvcc would refuse it, so install another and declare host_compiler = '{good}'",
        f"sudo apt-get install {' '.join(install)}",
        (declared or family, f"{family}-{version.partition('.')[0]}"),
        stops=True,
    )


def _plain_path(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge /usr/local/cuda: a link of update-alternatives that leads to the declared release."""
    if not spec.cuda.toolkit:
        return
    wanted, chosen = home(spec), known(record.cuda.alternative)
    link, id_ = known(record.cuda.link), Id.CUDA_LINK_DIFFERS
    if link == PLAIN:
        action = "left alone, since what is in it may be somebody's only copy; move it away"
        found, expected = f"{PLAIN} is a folder", f"a link to {wanted} by update-alternatives"
        yield report(id_, found, expected, action, f"sudo mv {PLAIN} {PLAIN}.before", stops=True)
        return
    action = f"choose {wanted} by update-alternatives"
    if link_by_hand(record):
        found = f"{PLAIN} is a link to {link} that somebody made"
        action = f"keep that link under another name and {action}"
    elif chosen is not None and chosen.rstrip("/") != wanted:
        found = f"{PLAIN} is {chosen}"
    elif link is None and str(spec.cuda.release) in known(record.cuda.toolkits):
        found = f"there is no {PLAIN}"
    else:
        return  # as declared, or it comes with the toolkit
    yield repair(id_, found, f"{wanted} by update-alternatives", action, ("cuda-toolkit-*",))


def link_by_hand(record: Record) -> bool:
    """Tell whether somebody made /usr/local/cuda: it leads elsewhere than the alternative."""
    link, chosen = record.cuda.link, record.cuda.alternative
    if not isinstance(link, str) or isinstance(chosen, Unknown):
        return False
    # Where the chosen folder is gone, the link leads as far as update-alternatives' own link.
    return chosen is None or link.rstrip("/") not in (chosen.rstrip("/"), "/etc/alternatives/cuda")


def _shadowed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    path = if_known(record.cuda.nvcc_on_path, None)
    if spec.cuda.toolkit and path and not path.startswith(f"{home(spec)}/"):
        yield report(
            Id.CUDA_SHELL_PATH,
            f"{path} is the first nvcc on PATH",
            f"none, or the one in {home(spec)}/bin",
            "left alone, since somebody put it there; see whose it is",
            f"dpkg -S {path}",
            ("nvidia-cuda-toolkit", "cuda-nvcc-*"),
        )


_FOLDER = re.compile(r"/cuda(?:-(\d+\.\d+))?(?![\w-])")


def _shells(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what login shells set: a program there would not get the CUDA that was verified.

    LD_LIBRARY_PATH comes before the libraries that torch brings, whichever CUDA it names.
    """
    lines = if_known(record.cuda.shell_lines, ()) if spec.accelerator == "nvidia" else ()
    if wrong := [each for each in lines if _misleads(spec, each)]:
        file, _, line = wrong[0].partition(":")
        yield report(
            Id.CUDA_SHELL_PATH,
            f"login shells get another CUDA from {file}: {line.strip()}",
            "no folder of another CUDA in a path, and none in LD_LIBRARY_PATH",
            "left alone, since somebody wrote that; take the line out, and log in again",
            f"grep -n cuda {file}",
        )


def _misleads(spec: HostSpec, row: str) -> bool:
    line = row.partition(":")[2]
    if "LD_LIBRARY_PATH" in line:
        return True
    named = {folder[1] for folder in _FOLDER.finditer(line)} - {None, spec.cuda.release}
    return bool(named) and spec.cuda.toolkit


def _metapackage(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """`cuda` and `cuda-13-0` depend on a driver of their own choice; the toolkit alone does not."""
    packages = if_known(record.nvidia.packages, ()) if spec.cuda.toolkit else ()
    if names := [each.name for each in packages if re.fullmatch(r"cuda(-\d+){0,2}", each.name)]:
        yield report(
            Id.CUDA_METAPACKAGE_INSTALLED,
            f"{', '.join(names)} installed",
            "the toolkit's package, which brings no driver",
            "left alone, but its next upgrade may bring another driver",
            apt.remove_by_hand(names),
            tuple(names),
        )


def _unproven(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if not spec.cuda.toolkit:
        return
    if unproven := outdated(record.cuda.proof, state(spec, record)):
        archs = ", ".join(f"sm_{arch}" for arch in spec.cuda.archs)
        expected = f"a kernel compiled for {archs} with what is installed now"
        found = f"not verified that nvcc works: {unproven}"
        yield repair(Id.CUDA_UNPROVEN, found, expected, f"compile for {archs}")


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: toolkit, compiler, what is compiled."""
    return {
        "the toolkit": sorted(f"{each.name} {each.version}" for each in of_release(spec, record)),
        "nvcc": str(record.cuda.nvcc),
        "cuda_host_compiler": compiler_name(spec),
        "its version": str(record.cuda.compiler if spec.cuda.host_compiler else record.cuda.gcc),
        "cuda_archs": list(spec.cuda.archs),
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("cuda"),
    }


judge = Rules(
    _toolkit,
    _closed,
    _compiler_missing,
    _compiler_out_of_range,
    _shells,
    _plain_path,
    _shadowed,
    _metapackage,
    _unproven,
)
