"""Write what documents say of the data keys: docs/keys.md, and a block of inventories/lab.py.

    python -m pyinfra_gpu.spec.document

Run it in the folder of the project after a key or stacks.yaml changed. Both files are derived from
the declarations of the keys alone; of `inventories/lab.py` only the marked block is replaced.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from itertools import starmap
from pathlib import Path

from pyinfra_gpu.spec.model import KEYS, STAGES, Key
from pyinfra_gpu.stacks import DriverBranch, Gpu, Repository, catalogue

COMMAND = "python -m pyinfra_gpu.spec.document"
PAGE = Path("docs", "keys.md")
INVENTORY = Path("inventories", "lab.py")
BEGIN = f"# --- every key: written by `{COMMAND}`, changes here are lost ---"
END = "# --- end of every key ---"

_WIDTH = 100
_KEY_COLUMNS = "key|allowed|default|meaning"
_INTRODUCTION = f"""\
# Every key

What a host should be is flat data, because pyinfra merges data per key: `--data KEY=VALUE` comes
before the host's own data, that before its group's, that before `group_data/all.py`. Every key is
optional. An unknown key, a wrong type, an impossible value or a combination that cannot work is one
sentence and exit code 1, before any host is contacted. None as a value means the default, where
that is None or depends on the stack or on other keys.

This page is written by `{COMMAND}` from `pyinfra_gpu/spec/` and
`pyinfra_gpu/stacks/stacks.yaml`.
"""


def page() -> str:
    """Return the text of docs/keys.md."""
    known = catalogue()
    tables = [_table(stage, _KEY_COLUMNS, map(_key, _of(stage))) for stage in STAGES]
    stacks = ([f"`{each.name}`", each.summary] for each in known.stacks.values())
    tables.append(_table("The names of stacks", "`stack`|what it is", stacks))
    columns = "`driver_branch`|newest CUDA it compiles for|kernel modules|support"
    tables.append(_table("Driver branches", columns, map(_branch, known.driver_branches.values())))
    columns = "release|driver branches|CUDA toolkits"
    releases = starmap(_release, known.repositories.releases.items())
    tables.append(_table("What NVIDIA's repositories carry", columns, releases))
    columns = "`gpu_model`|compute capability|memory in MiB|open kernel modules"
    tables.append(_table("GPUs", columns, map(_gpu, known.gpus.values())))
    return "\n".join([_INTRODUCTION, *tables])


def _table(title: str, columns: str, rows: Iterable[list[str]]) -> str:
    heads = columns.split("|")
    lines = [heads, *rows]
    shown = [f"| {' | '.join(cells)} |" for cells in lines]
    shown.insert(1, "|---" * len(heads) + "|")
    return "\n".join([f"## {title}", "", *shown, ""])


def _of(stage: str) -> list[Key]:
    return [key for key in KEYS.values() if key.stage == stage]


def _key(key: Key) -> list[str]:
    return [f"`{key.name}`", key.type_text, key.default_text, key.description]


def _branch(branch: DriverBranch) -> list[str]:
    until = f"until {branch.support}" if branch.support[0].isdigit() else branch.support
    cuda = str(branch.cuda or "not noted")
    return [str(branch.branch), cuda, ", ".join(branch.modules), until]


def _release(name: str, repository: Repository) -> list[str]:
    oldest, newest = repository.branches
    branches = f"{oldest} and newer" if newest is None else f"{oldest} to {newest}"
    toolkit = repository.oldest_toolkit
    return [name, branches, f"{toolkit} and newer" if toolkit else "all known"]


def _gpu(gpu: Gpu) -> list[str]:
    memory = str(gpu.memory_mib or "several or not noted")
    return [gpu.name, gpu.compute_capability, memory, gpu.open_modules]


def with_block(inventory: str) -> str:
    """Return the text of an inventory with its block of keys brought up to date.

    Raises ValueError where it does not have both marks, each once and in their order.
    """
    before, begin, rest = inventory.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not begin or not end or BEGIN in after:
        raise ValueError(f"{INVENTORY} must hold the lines `{BEGIN}` and `{END}`")
    return f"{before}{begin}{block()}{end}{after}"


def block() -> str:
    """Return the comments that explain every key, for an inventory."""
    lines: list[str] = []
    for stage in STAGES:
        lines += ["#", f"# {stage}"]
        for key in _of(stage):
            lines += _commented(key)
    return "\n".join(lines) + "\n"


def _commented(key: Key) -> list[str]:
    """Return a key as a line of a host's data, and its meaning below it."""
    shows_default = key.default is not None and not isinstance(key.default, dict)
    value = key.default if shows_default else key.example
    about = key.description if shows_default else f"{key.description}; default: {key.default_text}"
    shown = f'"{value}"' if isinstance(value, str) else repr(value).replace("'", '"')
    indent = "#         "
    meaning = textwrap.wrap(
        about, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [f'#     "{key.name}": {shown},', *meaning]


def main(folder: Path = Path()) -> None:
    """Bring both files below `folder` up to date."""
    inventory = folder / INVENTORY
    inventory.write_text(with_block(inventory.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / PAGE).parent.mkdir(exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} and the keys in {INVENTORY} are written\n")


if __name__ == "__main__":
    main()
