"""In what the CUDA toolkit, and the compiler it needs, are not as declared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import NvidiaPackage, Record
from pyinfra_gpu.facts.stamps import outdated
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stages.driver.inventory import of_gpus
from pyinfra_gpu.stages.files import lost_files
from pyinfra_gpu.stages.finding import Finding, Id, Stage, repair, report, stop
from pyinfra_gpu.stages.layout.findings import owner_name
from pyinfra_gpu.stages.rules import Rules, if_known, known, where
from pyinfra_gpu.text import some

STAGE = Stage.CUDA

NONE_DECLARED = "none is declared"
"""What this stage is where no toolkit is asked for: neither there nor missing."""

PLAIN = "/usr/local/cuda"
"""The path that is the same for every release, kept by update-alternatives."""

_NVCC = re.compile(r"(cuda-(nvcc|nvvm|crt)|libnvvm)-\d+-\d+")
_CONFIGURES = re.compile(r"cuda-toolkit-(\d+-){0,2}config-common")
"""The packages that tell the loader where a toolkit's libraries are."""


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


def compiler(spec: HostSpec) -> str:
    """Return the C++ compiler that nvcc uses: the declared one's, else the distribution's."""
    return (spec.cuda.host_compiler or "gcc").replace("gcc", "g++").replace("clang", "clang++")


def architectures(spec: HostSpec) -> str:
    """Name what nvcc has to compile for, e.g. "sm_90, sm_120"."""
    return ", ".join(f"sm_{arch}" for arch in spec.cuda.archs)


# -- the toolkit and its packages


def _ending(spec: HostSpec) -> str:
    """Return how the names of a release's packages end, e.g. "-13-0"."""
    return f"-{str(spec.cuda.release).replace('.', '-')}"


def _parts(spec: HostSpec, record: Record) -> list[NvidiaPackage]:
    """Return the installed packages of the declared release, in the order of their names."""
    packages = if_known(record.nvidia.packages, ())
    return [each for each in packages if each.name.partition(":")[0].endswith(_ending(spec))]


def _lacks_package(spec: HostSpec, record: Record) -> bool:
    """Tell whether the toolkit's own package is missing, or of another version than declared."""
    main, wanted = record.nvidia.package(package(spec)), spec.cuda.version
    return main is None or wanted not in (None, re.split(r"[-+~]", main.version)[0])


def damaged(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return the toolkit's packages that are to be installed again -> what is wrong.

    A part of nvcc that was forced off leaves the toolkit's package there, a dependency unmet. Of
    parts without that package, e.g. the runtime alone, nothing is missing.
    """
    ending, parts = _ending(spec), _parts(spec, record)
    missing = known(record.cuda.missing)
    half = {e.name: f"{e.name} not completely installed" for e in parts if not e.complete}
    if half or record.nvidia.package(package(spec)) is None:
        return half
    lost = lost_files(record, lambda name: name.endswith(ending) or bool(_CONFIGURES.match(name)))
    if lost or not missing:
        return {each.package: str(each) for each in lost}
    of_nvcc = [each.name for each in parts if _NVCC.fullmatch(each.name)]
    said = f"{', '.join(missing)} missing in {home(spec)}"
    return dict.fromkeys((f"cuda-nvcc{ending}", *of_nvcc), said)


def to_install(spec: HostSpec, record: Record) -> list[str]:
    """Return the toolkit's package where it is missing, as apt is asked for it.

    Only its own one: `cuda` and `cuda-13-0` bring a driver of their choice.
    """
    version, there = spec.cuda.version, known(record.cuda.toolkits)
    somebodys = spec.cuda.release in there and not _parts(spec, record)
    if somebodys or not _lacks_package(spec, record):
        return []
    return [f"{package(spec)}={version}-*" if version else package(spec)]


def _toolkit(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the release's packages; a toolkit of none is somebody's: used, never overwritten."""
    release, toolkits = str(spec.cuda.release), known(record.cuda.toolkits)
    known(record.nvidia.packages)
    parts, own, ending = _parts(spec, record), package(spec), _ending(spec)
    main, id_, found = record.nvidia.package(own), Id.CUDA_TOOLKIT_DIFFERS, ""
    if not parts and release in toolkits:
        missing = bool(known(record.cuda.missing))
        found = f"{home(spec)} is {'incomplete, and ' * missing}of no package"
        action = "left alone, since installing over it would replace somebody's files; to get the"
        action, command = f"{action} package's, move it away", f"sudo mv {home(spec)} {home(spec)}"
        command, expected = f"{command}.before", f"the toolkit of {own}"
        yield report(id_, found, expected, action, command, stops=missing)
        return
    if wrong := damaged(spec, record) if parts else {}:
        found, action = some([*dict.fromkeys(wrong.values())], 3), "reinstall its packages"
    elif main is None:
        found = f"only parts of CUDA {release} ({parts[0].name} ...)" if parts else ""
        found = found or f"no CUDA toolkit {release}"
        id_, action = Id.CUDA_NOT_INSTALLED, f"install {own}"
    elif _lacks_package(spec, record):
        found, action = f"{main.name} {main.version}", f"install {spec.cuda.version}"
    if found:
        expected = f"the CUDA toolkit {spec.cuda.version or release}"
        packages = (own, f"cuda-nvcc{ending}", f"cuda-cudart{ending}")
        yield repair(id_, found, expected, action, packages)


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether the owner can use the toolkit; one made under umask 077 is root's alone."""
    if known(record.cuda.nvcc) is None and _parts(spec, record) and not damaged(spec, record):
        found = f"{owner_name(spec, record)} cannot run {home(spec)}/bin/nvcc, which is there"
        expected = "a toolkit that everybody may read and run"
        action = "left alone, since somebody may have chosen those modes: open them"
        command = f"sudo chmod -R a+rX {home(spec)}"
        yield stop(Id.CUDA_TOOLKIT_DIFFERS, found, expected, action, command)


# -- the paths on which programs find it


def _plain_path(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge /usr/local/cuda; where there is no toolkit yet, the link comes with it."""
    wanted, chosen = home(spec), known(record.cuda.alternative)
    link, found, action = known(record.cuda.link), "", f"choose {wanted}"
    if made_by_hand(record):
        found = f"{PLAIN} is a folder" if link == PLAIN else f"{PLAIN} is a link to {link}"
        action, found = f"keep that under another name and {action}", f"{found} that somebody made"
    elif chosen is not None and chosen.rstrip("/") != wanted:
        found = f"{PLAIN} is {chosen}"
    elif link is None and str(spec.cuda.release) in known(record.cuda.toolkits):
        found = f"there is no {PLAIN}"
    if found:
        action, expected = f"{action} by update-alternatives", f"{wanted} by update-alternatives"
        yield repair(Id.CUDA_LINK_DIFFERS, found, expected, action, ("cuda-toolkit-*",))


def made_by_hand(record: Record) -> bool:
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
        action, id_ = "left alone, since somebody put it there; see whose it is", Id.CUDA_SHELL_PATH
        packages = ("nvidia-cuda-toolkit", "cuda-nvcc-*")
        yield report(id_, found, f"{expected}/bin", action, f"dpkg -S {path}", packages)


# -- the proof


def _unproven(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if unproven := outdated(record.cuda.proof, state(spec, record)):
        expected = f"a kernel compiled for {architectures(spec)} with what is installed now"
        found, action = "not verified that nvcc works", f"compile for {architectures(spec)}"
        yield repair(Id.CUDA_UNPROVEN, f"{found}: {unproven}", expected, action)


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: toolkit, compiler, what is compiled."""
    return {
        "the toolkit": sorted(f"{each.name} {each.version}" for each in _parts(spec, record)),
        "nvcc": str(record.cuda.nvcc),
        "cuda_host_compiler": compiler(spec),
        "its version": str(record.cuda.compiler if spec.cuda.host_compiler else record.cuda.gcc),
        "cuda_archs": list(spec.cuda.archs),
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("cuda"),
    }


judge = Rules(
    *where(declared, _toolkit, _closed, _plain_path, _first_nvcc, _unproven),
)
