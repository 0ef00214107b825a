"""Write what documents say of the data keys: docs/keys.md, and a block of inventories/lab.py.

    python -m pyinfra_gpu.spec.document

Run it in the folder of the project after a key or stacks.yaml changed. Both files are derived from
the declarations of the keys alone; of `inventories/lab.py` only the marked block is replaced.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from pyinfra_gpu.spec.model import KEYS, STAGES, Key
from pyinfra_gpu.stacks import catalogue

COMMAND = "python -m pyinfra_gpu.spec.document"
PAGE = Path("docs", "keys.md")
INVENTORY = Path("inventories", "lab.py")
BEGIN = f"# --- every key: written by `{COMMAND}`, changes here are lost ---"
END = "# --- end of every key ---"

_TEMPLATE = Path(__file__).with_name("keys.md.j2")
_INDENT = "#         "


def page() -> str:
    """Return the text of docs/keys.md."""
    environment = Environment(
        autoescape=False,  # noqa: S701 (it is Markdown)
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(command=COMMAND, stages=_by_stage(), known=catalogue())


def _by_stage() -> list[tuple[str, list[Key]]]:
    return [(stage, [key for key in KEYS.values() if key.stage == stage]) for stage in STAGES]


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
    for stage, keys in _by_stage():
        lines += ["#", f"# {stage}"]
        for key in keys:
            lines += _commented(key)
    return "\n".join(lines) + "\n"


def _commented(key: Key) -> list[str]:
    """Return a key as a line of a host's data, and its meaning below it."""
    shows_default = key.default is not None and not isinstance(key.default, dict)
    value = key.default if shows_default else key.example
    about = key.description if shows_default else f"{key.description}; default: {key.default_text}"
    shown = f'"{value}"' if isinstance(value, str) else repr(value).replace("'", '"')
    meaning = textwrap.wrap(
        about, 100, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
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
