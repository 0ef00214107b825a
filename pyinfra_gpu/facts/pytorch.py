"""The virtual environment and the torch in it, without importing torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRecord(Jsonable):
    """The environment's Python, and torch by its files.

    + python: version that the environment's python prints; None if there is no environment
    + python_problem: why that python does not run, None where it does (or where there is none)
    + base: the interpreter that the environment was made from, links followed
    + declared: the same of the declared interpreter; None where it is not there, or is not declared
      by a path
    + uv: version of the installer
    + version, git_version, cuda: from torch/version.py; cuda is None for a build without CUDA
    + damaged: the first 5 of torch's files that are missing or have another size than recorded, or
      were touched since the smoke test passed and have another digest than recorded
    + foreign: the first 5 libraries in torch's folders that no wheel of its brought there
    + damaged_others: normalised name of another distribution -> the first of its files of which
      that is true; at most 100 of them
    + elsewhere: where `import torch` finds another one, as "NAME ORIGIN" with the file beside the
      packages that leads there ("my.pth /tmp/torch/__init__.py"); None where it does not
    + touched: how many files were touched since then whose digests a look has no time for
    + needs: where any of those is damaged, what torch needs to run, by its own metadata, and it
    + installing: whether an installation was begun and not finished
    + distributions: normalised name -> version of everything installed; a name that is there
      twice has both versions in its value
    """

    python: str | Unknown | None
    python_problem: str | Unknown | None
    base: str | Unknown | None
    declared: str | Unknown | None
    uv: str | Unknown | None
    version: str | Unknown | None
    git_version: str | Unknown | None
    cuda: str | Unknown | None
    damaged: tuple[str, ...] | Unknown
    foreign: tuple[str, ...] | Unknown
    damaged_others: Mapping[str, str] | Unknown
    needs: tuple[str, ...] | Unknown
    elsewhere: str | Unknown | None
    touched: int | Unknown
    installing: bool | Unknown
    distributions: Mapping[str, str] | Unknown


class Torch(ConcernFact[TorchRecord]):
    """torch: `pyinfra INVENTORY fact pyinfra_gpu.facts.pytorch.Torch prefix=/opt/pyinfra-gpu`."""

    def read(self, answer: Answer) -> TorchRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> TorchRecord:
    """Return this concern, of what a host answered."""
    folders = answer.value(tuple[str, ...], "torch.folders")
    others = answer.value(dict[str, str], "torch.others")
    return answer.part(
        TorchRecord,
        "torch",
        damaged_others=others if isinstance(others, Unknown) else _first_files(others),
        distributions=folders if isinstance(folders, Unknown) else _distributions(folders),
    )


def _distributions(names: tuple[str, ...]) -> dict[str, str]:
    """Names and versions, from the names of the folders of metadata.

    A name that begins with "~" is what pip leaves of a package that it could not remove.
    """
    found: dict[str, str] = {}
    for folder in names:
        name, _, version = folder.removesuffix(".dist-info").rpartition("-")
        if not name or name.startswith("~"):
            continue
        name = _normalised(name)
        found[name] = f"{found[name]} and {version}" if name in found else version
    return found


def _first_files(told: Mapping[str, str]) -> dict[str, str]:
    """Distribution -> file; what is no name of a distribution is passed over (PEP 508)."""
    form = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
    return {_normalised(name): path for name, path in told.items() if form.fullmatch(name) and path}


def _normalised(name: str) -> str:
    """The name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
