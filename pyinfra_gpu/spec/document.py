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


def main(folder: Path = Path()) -> None:
    """Bring the page below `folder` up to date."""
    environment = Environment(
        autoescape=False,  # noqa: S701 (it is Markdown)
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    template = Path(__file__).with_name("keys.md.j2").read_text(encoding="utf-8")
    stages = [(stage, [*keys]) for stage, keys in groupby(KEYS.values(), lambda key: key.stage)]
    page = environment.from_string(template).render(
        command=COMMAND, stages=stages, known=catalogue()
    )
    (folder / PAGE).parent.mkdir(exist_ok=True)
    (folder / PAGE).write_text(page, encoding="utf-8")
    sys.stdout.write(f"{PAGE} is written\n")


if __name__ == "__main__":
    main()
