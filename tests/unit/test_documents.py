"""Documents are true: what they name exists, and what they show is what is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from drifts import DRIFTS
from field_cases import CASES
from test_house_layers import ROOMS

from pyinfra_gpu import cli
from pyinfra_gpu.report.check.answer import EXIT_CODES
from pyinfra_gpu.spec import KEYS
from pyinfra_gpu.stages.finding import Id, Stage

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = {
    str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8")
    for path in (
        *sorted(PROJECT.glob("*.md")),
        *sorted(PROJECT.glob("docs/*.md")),
        *sorted(PROJECT.glob("examples/*/README.md")),
    )
}
every_document = pytest.mark.parametrize("name", DOCUMENTS)
PAST = ("CHANGELOG.md",)
"""Documents that also name what is no longer there."""

FENCED = r"^```(?:[a-z]+)?\n(.*?)^```$"
FOLDERS = (
    "pyinfra_gpu", "inventories", "group_data", "tasks", "tests", "examples", "benchmarks", "docs",
)  # fmt: skip


@every_document
def test_every_path_that_is_named_exists(name: str) -> None:
    for path in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[^`\s]*)`", DOCUMENTS[name]):
        assert any(PROJECT.glob(path.rstrip("/"))), path


def anchors(text: str) -> set[str]:
    """The names by which a page's headings are reached."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@every_document
def test_every_link_leads_somewhere(name: str) -> None:
    here = (PROJECT / name).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", DOCUMENTS[name]):
        path, _, anchor = link.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        target = (here / path).resolve() if path else PROJECT / name
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


@every_document
def test_every_finding_that_is_named_is_one(name: str) -> None:
    stages = "|".join(Stage)
    for id_ in re.findall(rf"`((?:{stages})\.[a-z]+(?:-[a-z]+)+)`", DOCUMENTS[name]):
        assert id_ in {*Id}, id_


@every_document
def test_every_setting_that_is_shown_is_a_key(name: str) -> None:
    if name == "CONTRIBUTING.md":  # shows code
        return
    for key in re.findall(r"`([a-z_]+) = [^`]+`", DOCUMENTS[name]):
        assert key in KEYS or key.startswith("ssh_"), key  # those are pyinfra's


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command line of ours that a document shows."""
    fenced = re.findall(FENCED, text, re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(FENCED, "", text, flags=re.MULTILINE | re.DOTALL))
    for line in lines:
        words = (
            shlex.split(line.rpartition("| ")[2], comments=True) if "pyinfra-gpu " in line else []
        )
        if words[:1] == ["pyinfra-gpu"]:
            yield words[1:]


@every_document
def test_every_command_of_ours_is_understood(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its own parser, which is asked for help on those very words and does nothing."""
    if name in PAST:
        return
    for line in commands(DOCUMENTS[name]):
        words = line[: line.index("--")] if "--" in line else line  # the rest is a launcher's
        assert cli.main([*words, "--help"]) == 0, words
        shown = capsys.readouterr().out
        for option in (word.partition("=")[0] for word in words if word.startswith("-")):
            assert option in shown, (words, option)


@every_document
def test_every_target_of_make_is_one(name: str) -> None:
    targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:^|`)make ([a-z]+)(?=[\s`])", DOCUMENTS[name], re.MULTILINE):
        assert target in targets, target


def test_the_rooms_stand_in_their_order() -> None:
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENTS["docs/architecture.md"], re.MULTILINE)
    rooms = re.findall(r"`(\w+)`", " ".join(rows))
    assert rooms == [*reversed(ROOMS), "on_host"]


@pytest.mark.parametrize("name", ["docs/check.md", "examples/nightly/README.md"])
def test_the_exit_codes_of_check_are_listed(name: str) -> None:
    codes = re.findall(r"^\| (\d) \|", DOCUMENTS[name], re.MULTILINE)
    assert sorted(map(int, codes)) == sorted(EXIT_CODES.values())


def test_the_tables_of_drift_have_as_many_rows_as_is_said() -> None:
    text = " ".join(DOCUMENTS["docs/what-it-ensures.md"].split())
    assert f"each of {len(DRIFTS)} kinds of drift" in text
    assert f"`tests/rehearsal/field_cases.py` has {len(CASES)} more" in text
