"""The named entries: all of them load, and each example of the corpus is found by its entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pyinfra_gpu.on_host.diagnosis import causes

CORPUS = Path(__file__).parent / "corpus"
FOLDER = Path(causes.__file__).parents[2] / "diagnosis/causes"
SECTIONS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.yaml")
}
KNOWN = causes.read(SECTIONS)


def examples() -> Iterator[tuple[str, str]]:
    """Yield the name of each example, "-" where nothing may be found, and its text."""
    for path in sorted(CORPUS.glob("*.txt")):
        for part in path.read_text(encoding="utf-8").split("\n=== "):
            title, _, text = part.removeprefix("=== ").partition("\n")
            yield title.split()[0], text


def found(text: str) -> set[str]:
    """Return the entries one of whose messages stands in a text."""
    return {
        name
        for name, entry in KNOWN.entries.items()
        if any(next(message.find(text), None) for message in entry.match)
    }


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.txt")), ids=lambda path: path.stem)
def test_each_section_has_examples(path: Path) -> None:
    assert path.stem in SECTIONS


@pytest.mark.parametrize(("name", "text"), list(examples()))
def test_an_example_is_found_by_its_entry(name: str, text: str) -> None:
    if name == "-":
        assert found(text) == set()
    else:
        assert name in found(text)


def test_what_is_packed_for_hosts_is_what_was_read() -> None:
    assert causes.unpacked(causes.packed(SECTIONS)) == KNOWN
