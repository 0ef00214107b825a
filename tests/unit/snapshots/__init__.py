"""Whole answers as files beside this one: what a person sees, to be read in a review.

After a change that is meant: `NEW_SNAPSHOTS=1 pytest tests/unit`, and look at the diff.
"""

from __future__ import annotations

import os
from pathlib import Path


def same(name: str, text: str) -> None:
    """Compare a text with the file of this name."""
    path = Path(__file__).with_name(name)
    if os.environ.get("NEW_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
