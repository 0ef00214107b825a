"""Text for a terminal of 80 columns: what prints on hosts prints here as well."""

from __future__ import annotations

from pyinfra_gpu.on_host.terminal import (
    WIDTH,
    columns,
    command,
    draws,
    one_line,
    paragraph,
    shortened,
    some,
    visible,
    without_escapes,
)

__all__ = [
    "WIDTH",
    "columns",
    "command",
    "draws",
    "one_line",
    "paragraph",
    "shortened",
    "some",
    "visible",
    "without_escapes",
]
