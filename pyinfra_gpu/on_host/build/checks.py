"""What configuring came to, looked at before hours are spent: in what ninja will do.

CMake's own summary cannot prove libuv or the architectures: with a system TensorPipe it says
"distributed 1, tensorpipe 1", and not one file is compiled with TORCH_USE_LIBUV.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from . import tree
from .configure import LOG
from .errors import BuildError
from .place import Place
from .plan import Plan, truth

LIBUV = "TORCH_USE_LIBUV"
_CODE = re.compile(r"code=(?:\[)?((?:sm|compute)_\d+[af]?)|-arch[= ]((?:sm|compute)_\d+[af]?)")
_SUMMARY = re.compile(r"^--\s{1,8}((?:USE|BUILD)_\w+)\s*:\s*(\S+)")
_UNUSED = "Manually-specified variables were not used by the project"
_ARCHS_LINE = "Added CUDA NVCC flags for"
_CUDNN = re.compile(r"^-- Found CUDNN: (\S+)")
_VERSION = re.compile(r"^-- Building version (\S+)\s*$")


@dataclass
class Commands:
    """What build.ninja says of all its commands.

    + libuv: how many lines define TORCH_USE_LIBUV
    + code: architectures that nvcc makes code for, as it names them
    """

    libuv: int = 0
    code: set[str] = field(default_factory=set)


def commands(build: Path) -> Commands:
    """Read build.ninja line by line; PyTorch's has a hundred thousand."""
    found = Commands()
    for path in (build / "build.ninja", *sorted(build.glob("CMakeFiles/rules.ninja"))):
        with path.open(encoding="utf-8", errors="replace") as rows:
            for row in rows:
                if LIBUV in row:
                    found.libuv += 1
                if "code=" in row or "-arch" in row:
                    found.code |= {one or two for one, two in _CODE.findall(row)}
    return found


def check(plan: Plan, place: Place) -> None:
    """Raise BuildError with the line that differs, where a build would not be what is declared."""
    stand_in = tree.is_stand_in(place.source)
    if stand_in and not plan.rehearsal:
        raise BuildError(
            "the source calls itself a stand-in for rehearsals, and this host is declared as a real"
            " one: set pytorch_git_url to PyTorch's repository, or rehearsal = True"
        )
    log = (place.root / LOG).read_text(encoding="utf-8").splitlines()
    _version(plan, log)
    _ignored(plan, place, log)
    _summary(plan, log)
    found = commands(place.build)
    if plan.wants("USE_DISTRIBUTED") and found.libuv == 0:
        raise BuildError(
            f"no command in build.ninja defines {LIBUV}, so this torch would have no libuv, and"
            f" torchrun could not run: {_tensorpipe(log)}",
            tuple(row for row in log if "ensorpipe" in row or "TENSORPIPE" in row)[:5],
        )
    if plan.cuda is not None:
        _archs(plan, found, log)
    if plan.cudnn is not None:
        _cudnn(plan.cudnn, log)


def _version(plan: Plan, log: list[str]) -> None:
    """Refuse a tree that calls itself otherwise: its wheel would be refused hours later."""
    for row in log:
        said = _VERSION.match(row)
        if said and said[1] != plan.version:
            raise BuildError(
                f"the tree would build torch {said[1]}, and {plan.version} is declared: it does not"
                " take PYTORCH_BUILD_VERSION, as a distribution's patched source does not",
                (row,),
            )


def _tensorpipe(log: list[str]) -> str:
    system = any("SYSTEM_LIBS" in row or "system tensorpipe" in row.lower() for row in log)
    if system:
        return "a system TensorPipe was taken, which has none; use the one in the tree"
    return "USE_TENSORPIPE and USE_DISTRIBUTED have to be on, with the TensorPipe of the tree"


def _ignored(plan: Plan, place: Place, log: list[str]) -> None:
    """Refuse a declared flag without effect: CMake names those given to it, the rest we look for.

    Names that the tree forwards from the environment never appear among CMake's.
    """
    unused: set[str] = set()
    for number, row in enumerate(log):
        if _UNUSED in row:
            rows = (each.strip() for each in log[number + 1 : number + 40])
            unused |= {each for each in rows if re.fullmatch(r"\w+", each)}
    for name in plan.declared:
        if name in unused or not tree.reads(place.source, name):
            raise BuildError(
                f"pytorch_flags has {name}, which nothing in this source reads: remove it"
                f" ({_UNUSED if name in unused else 'no CMake file of the tree names it'})"
            )


def _summary(plan: Plan, log: list[str]) -> None:
    """Compare what CMake says it decided: it switches off what it does not find."""
    for row in log:
        said = _SUMMARY.match(row)
        wanted = plan.settings.get(said[1]) if said else None
        if said is None or wanted is None or not re.fullmatch(r"(?i)0|1|on|off", wanted):
            continue
        if truth(said[2]) != truth(wanted):
            raise BuildError(
                f"{said[1]} = {wanted} is declared, and CMake decided otherwise:"
                f" `{row.strip()}`: what it lacks stands above that line in {LOG}",
                (row,),
            )


def _cudnn(declared: str, log: list[str]) -> None:
    """Compare which cuDNN was taken: CMake looks at the system's before the declared one."""
    said = next((row for row in log if _CUDNN.match(row)), "")
    match = _CUDNN.match(said)
    if match is None or not match[1].startswith(f"{declared}/"):
        raise BuildError(
            f"pytorch_cudnn is {declared}, and CMake took another: `{said or 'no line names any'}`:"
            f" have include and lib in {declared}, and remove the system's cuDNN",
            (said,) if said else (),
        )


def _archs(plan: Plan, found: Commands, log: list[str]) -> None:
    wanted = {f"sm_{arch.replace('.', '')}" for arch in plan.archs}
    made = {code.rstrip("af") for code in found.code if code.startswith("sm_")}
    if made != wanted:
        said = next((row.strip() for row in log if _ARCHS_LINE in row), "no line names any")
        raise BuildError(
            f"nvcc would make code for {', '.join(sorted(made)) or 'nothing'}, and pytorch_archs"
            f" declares {', '.join(sorted(wanted))}: `{said}`",
            (said,),
        )
