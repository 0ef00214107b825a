"""The catalogue's data: every entry is complete, has an example, and is searched for quickly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pyinfra_gpu.diagnosis.catalogue import written
from pyinfra_gpu.diagnosis.host_facts import FACTS
from pyinfra_gpu.on_host.diagnosis import causes

CORPUS = Path(__file__).parent / "corpus"
KNOWN = written()
SHORTEST_ANCHOR = 6  # characters

Text = Annotated[str, StringConstraints(min_length=1)]
Steps = Annotated[list[Text | dict[Text, dict[Literal["run"], Text]]], Field(min_length=1)]


class Hint(BaseModel):
    model_config = ConfigDict(extra="forbid")
    cause: Text
    fix: Steps | None = None
    log: Text | None = None
    host: Literal[tuple(FACTS)] | None = None  # type: ignore[valid-type]


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    match: Annotated[list[Text], Field(min_length=1)]
    cause: Text
    fix: Steps
    when: Annotated[list[Hint], Field(max_length=3)] = []
    hides: list[Literal[tuple(KNOWN)]] = []  # type: ignore[valid-type]
    kind: Literal["root", "wrapper"] = "root"
    weak: bool = False
    transient: bool = False
    source: Text


def fields(*messages: str) -> set[str]:
    """Return the fields of messages, each of which can be found in bounded time."""
    found: set[str] = set()
    for each in map(causes.message, messages):
        assert len(each.anchor) >= SHORTEST_ANCHOR, f"few plain characters in a row: {each.source}"
        unbounded = each.regular == each.source and re.search(r"(?<!\\)[*+]", _plain(each.source))
        assert not unbounded, f"repeats without a bound: {each.source}"
        found |= set(re.compile(each.regular).groupindex)
    return found


def _plain(regular: str) -> str:
    return re.sub(r"\[(?:\\.|[^\]\\])*\]", "", regular)


@pytest.mark.parametrize("name", KNOWN)
def test_an_entry_is_complete_and_uses_fields_that_its_messages_have(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name)
    entry = Entry.model_validate(KNOWN[name])
    known = fields(*entry.match)
    assert used(entry.cause, entry.fix) <= known
    for hint in entry.when:
        assert (hint.log is None) != (hint.host is None)
        assert used(hint.cause, hint.fix) <= known | fields(*filter(None, [hint.log]))


def used(*texts: Any) -> set[str]:
    return set(causes.FIELD.findall(str(texts).replace("{'run'", "")))


def test_the_catalogue_has_at_most_255_entries_and_each_an_example() -> None:
    corpus = "".join(path.read_text(encoding="utf-8") for path in CORPUS.glob("*.txt"))
    assert set(re.findall(r"^=== (\S+)", corpus, re.MULTILINE)) - {"-"} == set(KNOWN)
    assert len(KNOWN) <= 255
