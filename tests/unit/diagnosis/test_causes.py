"""The named entries: all of them load, have an example, and are packed as they were read."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("section", SECTIONS)
def test_each_entry_has_an_example(section: str) -> None:
    corpus = (CORPUS / f"{section}.txt").read_text(encoding="utf-8")
    assert set(re.findall(r"^=== (\S+)", corpus, re.MULTILINE)) - {"-"} == set(SECTIONS[section])


def test_what_is_packed_for_hosts_is_what_was_read() -> None:
    assert causes.unpacked(causes.packed(SECTIONS)) == KNOWN
