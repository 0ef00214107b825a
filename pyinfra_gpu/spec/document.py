"""Write what documents say of the data keys: docs/keys.md, and a block of inventories/lab.py.

    python -m pyinfra_gpu.spec.document

Run it in the folder of the project after a key or stacks.yaml changed. Both files are derived from
the declarations of the keys alone; of `inventories/lab.py` only the marked block is replaced.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from pyinfra_gpu.spec.model import KEYS, STAGES, Key
from pyinfra_gpu.stacks import Catalogue, catalogue

COMMAND = "python -m pyinfra_gpu.spec.document"
PAGE = Path("docs", "keys.md")
INVENTORY = Path("inventories", "lab.py")
BEGIN = f"# --- every key: written by `{COMMAND}`, changes here are lost ---"
END = "# --- end of every key ---"

_WIDTH = 100
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
    return "\n".join([_INTRODUCTION, *_keys(), *_names(catalogue())])


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
        for key in (key for key in KEYS.values() if key.stage == stage):
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


def _keys() -> Iterator[str]:
    for stage in STAGES:
        yield f"## {stage}\n"
        yield "| key | allowed | default | meaning |"
        yield "|---|---|---|---|"
        for key in (key for key in KEYS.values() if key.stage == stage):
            yield (f"| `{key.name}` | {key.type_text} | {key.default_text} | {key.description} |")
        yield ""


def _names(known: Catalogue) -> Iterator[str]:
    """Yield the tables of what stacks.yaml knows by name."""
    yield "## The names of stacks\n"
    yield "| `stack` | what it is |"
    yield "|---|---|"
    yield from (f"| `{stack.name}` | {stack.summary} |" for stack in known.stacks.values())
    yield "\n## Driver branches\n"
    yield "| `driver_branch` | newest CUDA it compiles for | kernel modules | support |"
    yield "|---|---|---|---|"
    for branch in known.driver_branches.values():
        yield (
            f"| {branch.branch} | {branch.cuda or 'not noted'} | {', '.join(branch.modules)} | "
            f"{_support(branch.support)} |"
        )
    yield from _releases(known)
    yield "\n## GPUs\n"
    yield "| `gpu_model` | compute capability | memory in MiB | open kernel modules |"
    yield "|---|---|---|---|"
    for gpu in known.gpus.values():
        yield (
            f"| {gpu.name} | {gpu.compute_capability} | {gpu.memory_mib or 'several or not noted'} "
            f"| {gpu.open_modules} |"
        )
    yield ""


def _releases(known: Catalogue) -> Iterator[str]:
    """Yield the table of what the repository of each distribution release carries."""
    yield "\n## What NVIDIA's repositories carry\n"
    yield "| release | driver branches | CUDA toolkits |"
    yield "|---|---|---|"
    for name, repository in known.repositories.releases.items():
        oldest, newest = repository.branches
        branches = f"{oldest} and newer" if newest is None else f"{oldest} to {newest}"
        toolkit = repository.oldest_toolkit
        yield f"| {name} | {branches} | {f'{toolkit} and newer' if toolkit else 'all known'} |"


def _support(text: str) -> str:
    return f"until {text}" if text[0].isdigit() else text


def main(folder: Path = Path()) -> None:
    """Bring both files below `folder` up to date."""
    inventory = folder / INVENTORY
    inventory.write_text(with_block(inventory.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / PAGE).parent.mkdir(exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} and the keys in {INVENTORY} are written\n")


if __name__ == "__main__":
    main()
