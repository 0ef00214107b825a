"""In what the CUDA toolkit, and the compiler it needs, are not as declared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyinfra_gpu.drift.driver_inventory import of_gpus
from pyinfra_gpu.drift.files import lost_files, packages_of, told
from pyinfra_gpu.drift.finding import Finding, Id, Stage, repair, report
from pyinfra_gpu.drift.layout import owner_name
from pyinfra_gpu.drift.proof import outdated
from pyinfra_gpu.drift.rules import Rules, if_known, known, where
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import NvidiaPackage, Record
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue

STAGE = Stage.CUDA

NONE_DECLARED = "none is declared"
"""What this stage is where no toolkit is asked for: neither there nor missing."""

PLAIN = "/usr/local/cuda"
"""The path that is the same for every release, kept by update-alternatives."""

_COMPILERS = re.compile(r"(cuda-(nvcc|nvvm|crt)|libnvvm)-\d+-\d+")
_FOLDER = re.compile(r"/cuda(?:-(\d+\.\d+))?(?![\w-])")


def declared(spec: HostSpec) -> bool:
    """Tell whether a toolkit is asked for."""
    return of_gpus(spec) and spec.cuda.toolkit


def summary(spec: HostSpec, record: Record) -> str:
    """Say in a few words what the toolkit is where nothing differs."""
    del record
    return f"CUDA toolkit {spec.cuda.release}" if declared(spec) else NONE_DECLARED


def home(spec: HostSpec) -> str:
    """Return the declared toolkit's folder, e.g. /usr/local/cuda-13.0."""
    return f"{PLAIN}-{spec.cuda.release}"


def package(spec: HostSpec) -> str:
    """Return the declared toolkit's package, e.g. cuda-toolkit-13-0."""
    return catalogue().toolkit_package(str(spec.cuda.release))


def _ending(spec: HostSpec) -> str:
    """Return how the names of a release's packages end, e.g. "-13-0"."""
    return f"-{str(spec.cuda.release).replace('.', '-')}"


# -- the toolkit and its packages


def _parts(spec: HostSpec, record: Record) -> list[NvidiaPackage]:
    """Return the installed packages of the declared release, in the order of their names."""
    packages, ending = if_known(record.nvidia.packages, ()), _ending(spec)
    return [each for each in packages if each.name.partition(":")[0].endswith(ending)]


def damaged(spec: HostSpec, record: Record) -> list[str]:
    """Return the declared release's packages whose files differ, or that are half installed."""
    half = [each.name for each in _parts(spec, record) if not each.complete]
    lost = lost_files(record, lambda name: name.endswith(_ending(spec)))
    return [*packages_of(lost), *half]


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
    names = [each.name for each in _parts(spec, record) if _COMPILERS.fullmatch(each.name)]
    return [*dict.fromkeys((f"cuda-nvcc{_ending(spec)}", *names))]


def broken(spec: HostSpec, record: Record) -> str | None:
    """Say what is missing of an installed toolkit, or None."""
    missing, nvcc = known(record.cuda.missing), known(record.cuda.nvcc)
    if half := [each.name for each in _parts(spec, record) if not each.complete]:
        return f"{', '.join(half)} not completely installed"
    # Parts alone (somebody installed just the runtime) are not a broken toolkit.
    if record.nvidia.package(package(spec)) is None:
        return None
    if missing:
        return f"{', '.join(missing)} missing in {home(spec)}"
    if lost := lost_files(record, lambda name: name.endswith(_ending(spec))):
        return told(lost)
    if nvcc not in (None, spec.cuda.release):
        return f"the nvcc in {home(spec)} is of release {nvcc}"
    return None


def _toolkit(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the packages of the declared release: there, whole, of the declared version.

    A toolkit that no package brought belongs to somebody: it is used, never overwritten.
    """
    release, toolkits = str(spec.cuda.release), known(record.cuda.toolkits)
    known(record.nvidia.packages)
    parts, main, ending = _parts(spec, record), record.nvidia.package(package(spec)), _ending(spec)
    expected, id_ = f"the CUDA toolkit {spec.cuda.version or release}", Id.CUDA_TOOLKIT_DIFFERS
    packages = (package(spec), f"cuda-nvcc{ending}", f"cuda-cudart{ending}")
    if not parts and release in toolkits:
        missing = bool(known(record.cuda.missing))
        yield report(
            id_,
            f"{home(spec)} is {'incomplete, and ' if missing else ''}of no package",
            f"the toolkit of {package(spec)}",
            "left alone, since installing over it would replace somebody's files; to get the"
            " package's, move it away",
            f"sudo mv {home(spec)} {home(spec)}.before",
            stops=missing,
        )
    elif parts and (wrong := broken(spec, record)):
        yield repair(id_, wrong, expected, "reinstall its packages", packages)
    elif main is None:
        found = f"only parts of CUDA {release} ({parts[0].name} ...)" if parts else None
        found, action = found or f"no CUDA toolkit {release}", f"install {package(spec)}"
        yield repair(Id.CUDA_NOT_INSTALLED, found, expected, action, packages)
    elif lacks_package(spec, record):
        found, wanted = f"{main.name} {main.version}", str(spec.cuda.version)
        yield repair(id_, found, f"version {wanted}", f"install {wanted}", packages)


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether the owner can use the toolkit; one made under umask 077 is root's alone."""
    if known(record.cuda.nvcc) is None and _parts(spec, record) and broken(spec, record) is None:
        yield report(
            Id.CUDA_TOOLKIT_DIFFERS,
            f"{owner_name(spec, record)} cannot run {home(spec)}/bin/nvcc, which is there",
            "a toolkit that everybody may read and run",
            "left alone, since somebody may have chosen those modes: open them",
            f"sudo chmod -R a+rX {home(spec)}",
            stops=True,
        )


def _metapackage(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """`cuda` and `cuda-13-0` depend on a driver of their own choice; the toolkit alone does not."""
    del spec
    packages = if_known(record.nvidia.packages, ())
    if names := [each.name for each in packages if re.fullmatch(r"cuda(-\d+){0,2}", each.name)]:
        found, expected = f"{', '.join(names)} installed", "the toolkit's package, which brings no"
        action = "left alone, but its next upgrade may bring another driver"
        command, id_ = f"sudo apt-get remove {' '.join(names)}", Id.CUDA_METAPACKAGE_INSTALLED
        yield report(id_, found, f"{expected} driver", action, command, tuple(names))


# -- the compiler


def compiler_name(spec: HostSpec) -> str:
    """Return the C++ compiler nvcc uses: the declared one's, else the distribution's."""
    name, _, major = (spec.cuda.host_compiler or "").partition("-")
    return f"{'clang++' if name == 'clang' else 'g++'}-{major}" if name else "g++"


def compiler_packages(spec: HostSpec, record: Record) -> list[str]:
    """Return the packages of the compilers that are missing; [] where none is."""
    cuda, compiler = record.cuda, spec.cuda.host_compiler
    wanted = []
    if spec.cuda.toolkit and compiler is not None and cuda.compiler is None:
        wanted += [compiler] if compiler.startswith("clang") else [compiler, compiler_name(spec)]
    if spec.cuda.toolkit and cuda.gxx is False:
        wanted.append("g++")
    elif cuda.gcc is None:
        wanted.append("gcc")  # Triton and torch.compile need one at run time
    return wanted


def _compiler(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether all compilers are there, and whether nvcc takes them.

    Without root nothing is installed or refused.
    """
    rooted, cuda, id_ = spec.privilege == "sudo", record.cuda, Id.CUDA_COMPILER_DIFFERS
    for each in (cuda.gcc, cuda.compiler, cuda.gxx) if rooted else ():
        known(each)
    if not (wanted := compiler_packages(spec, record)):
        yield from _out_of_range(spec, record) if spec.cuda.toolkit else ()
        return
    found, names = f"no {wanted[0]}", ", ".join(wanted)
    expected, packages = f"{names} for nvcc and torch.compile", (*wanted, "gcc", "g++")
    if rooted:
        yield repair(id_, found, expected, f"install {names}", packages)
    else:
        action = "left alone, as nothing is installed with privilege = 'none'"
        command = f"sudo apt-get install {' '.join(wanted)}"
        yield report(id_, found, expected, action, command, packages)


def _version(spec: HostSpec, record: Record) -> str | Unknown | None:
    """Return the version of the compiler that nvcc uses."""
    return record.cuda.compiler if spec.cuda.host_compiler else record.cuda.gcc


def _out_of_range(spec: HostSpec, record: Record) -> Iterator[Finding]:
    name, release = spec.cuda.host_compiler or "gcc", catalogue().cuda[str(spec.cuda.release)]
    family, version = name.partition("-")[0], if_known(_version(spec, record), None)
    bounds = release.clang if family == "clang" else release.gcc
    if not bounds or not version or bounds[0] <= int(version.partition(".")[0]) <= bounds[1]:
        return
    good = f"{family}-{bounds[1]}"
    install = good if family == "clang" else f"{good} g++-{bounds[1]}"
    yield report(
        Id.CUDA_COMPILER_DIFFERS,
        f"{name} is version {version}",
        f"{family} {bounds[0]} to {bounds[1]}, as CUDA {release.release} needs",
        f"nvcc would refuse it, so install another and declare host_compiler = '{good}'",
        f"sudo apt-get install {install}",
        (name, f"{family}-{version.partition('.')[0]}"),
        stops=True,
    )


# -- the paths on which programs find it


def _plain_path(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge /usr/local/cuda: a link of update-alternatives that leads to the declared release."""
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


def _first_nvcc(spec: HostSpec, record: Record) -> Iterator[Finding]:
    path = if_known(record.cuda.nvcc_on_path, None)
    if path and not path.startswith(f"{home(spec)}/"):
        found, expected = f"{path} is the first nvcc on PATH", f"none, or the one in {home(spec)}"
        action = "left alone, since somebody put it there; see whose it is"
        packages = ("nvidia-cuda-toolkit", "cuda-nvcc-*")
        command, id_ = f"dpkg -S {path}", Id.CUDA_SHELL_PATH
        yield report(id_, found, f"{expected}/bin", action, command, packages)


def _shells(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what login shells set: a program there would not get the CUDA that was verified.

    LD_LIBRARY_PATH comes before the libraries that torch brings, whichever CUDA it names.
    """
    if wrong := [each for each in if_known(record.cuda.shell_lines, ()) if _misleads(spec, each)]:
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
    named = {folder[1] for folder in _FOLDER.finditer(line)} - {None, spec.cuda.release}
    return "LD_LIBRARY_PATH" in line or (bool(named) and spec.cuda.toolkit)


# -- the proof


def _unproven(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if unproven := outdated(record.cuda.proof, state(spec, record)):
        archs = ", ".join(f"sm_{arch}" for arch in spec.cuda.archs)
        expected = f"a kernel compiled for {archs} with what is installed now"
        found = f"not verified that nvcc works: {unproven}"
        yield repair(Id.CUDA_UNPROVEN, found, expected, f"compile for {archs}")


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: toolkit, compiler, what is compiled."""
    return {
        "the toolkit": sorted(f"{each.name} {each.version}" for each in _parts(spec, record)),
        "nvcc": str(record.cuda.nvcc),
        "cuda_host_compiler": compiler_name(spec),
        "its version": str(_version(spec, record)),
        "cuda_archs": list(spec.cuda.archs),
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("cuda"),
    }


judge = Rules(
    *where(declared, _toolkit, _closed),
    *where(of_gpus, _compiler, _shells),
    *where(declared, _plain_path, _first_nvcc, _metapackage, _unproven),
)
