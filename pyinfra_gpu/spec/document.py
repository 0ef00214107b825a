"""Write what documents say of the data keys, docs/keys.md, from their declarations alone.

    python -m pyinfra_gpu.spec.document

Run it in the folder of the project after a key or stacks.yaml changed.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from pyinfra_gpu.spec.model import KEYS
from pyinfra_gpu.stacks import catalogue

COMMAND = "python -m pyinfra_gpu.spec.document"
PAGE = Path("docs", "keys.md")

_TEMPLATE = Path(__file__).with_name("keys.md.j2")


def page() -> str:
    """Return the text of docs/keys.md."""
    environment = Environment(
        autoescape=False,  # noqa: S701 (it is Markdown)
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    stages = [(stage, [*keys]) for stage, keys in groupby(KEYS.values(), lambda key: key.stage)]
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(command=COMMAND, stages=stages, known=catalogue())


def main(folder: Path = Path()) -> None:
    """Bring the page below `folder` up to date."""
    (folder / PAGE).parent.mkdir(exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} is written\n")


if __name__ == "__main__":
    main()
