"""Documents are true: what they name exists, and what they show is what is printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from drifts import DRIFTS
from field_cases import CASES
from gpu_host import bare_gpu_host
from proven_host import proven_host, record_of
from test_check import upgraded
from test_house_layers import ROOMS

from pyinfra_gpu import cli
from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.diagnosis.matcher import explain
from pyinfra_gpu.diagnosis.render import render as render_diagnosis
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.drift.host import judge as judge_stages
from pyinfra_gpu.report.check.answer import EXIT_CODES, Answer
from pyinfra_gpu.report.check.judge import judge
from pyinfra_gpu.report.check.render import render
from pyinfra_gpu.report.plain import finding_as_json
from pyinfra_gpu.report.table import render as render_run
from pyinfra_gpu.spec import allowed_keys
from pyinfra_gpu.stacks.bundle import smoke_digest

PROJECT = Path(__file__).resolve().parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
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
        assert key in allowed_keys() or key.startswith("ssh_"), key  # those are pyinfra's


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
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--help"])
        assert ended.value.code == 0, words
        shown = capsys.readouterr().out
        for option in (word.partition("=")[0] for word in words if word.startswith("-")):
            assert option in shown, (words, option)


@every_document
def test_every_target_of_make_is_one(name: str) -> None:
    targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:^|`)make ([a-z]+)(?=[\s`])", DOCUMENTS[name], re.MULTILINE):
        assert target in targets, target


def test_the_readme_is_a_page() -> None:
    """Lines that a terminal would wrap are rows of tables, links, and commands with a comment."""
    assert len(README.splitlines()) <= 200
    wide = [line for line in README.splitlines() if len(line) > 80]
    assert [line for line in wide if not re.match(r"\|.*\|$|.*\]\(|.*  # |ssh ", line)] == []


def test_the_rooms_stand_in_their_order() -> None:
    (block,) = blocks(DOCUMENTS["docs/architecture.md"], "  deploy.py, tasks/")
    (_, *rooms, _) = re.findall(r"^  (\w[^ ]*(?:, [^ ]+)*)  ", block, re.MULTILINE)
    assert ", ".join(rooms).split(", ") == [*reversed(ROOMS)]


def blocks(text: str, beginning: str) -> list[str]:
    """The block of a document that begins so, cut where it leaves lines out."""
    fenced = re.findall(FENCED, text, re.MULTILINE | re.DOTALL)
    block = next(each for each in fenced if each.startswith(beginning))
    return [part.strip("\n") for part in re.split(r"^ *\.\.\.$", block, flags=re.MULTILINE)]


def test_the_check_in_the_readme_is_what_is_printed() -> None:
    data: dict[str, object] = {"smoke": "auto"}
    healthy = proven_host(data=data)
    passed = fingerprint(healthy.spec(), record_of(healthy), smoke_digest())
    stamp = json.dumps({"fingerprint": passed, "status": "pass", "mode": "gpu"})
    night = upgraded()
    night.data |= data
    night.plain |= {"smoke.stamp": stamp}
    night.lists["nvidia.package"] = [
        row.replace(" 1 1", " 0 1") for row in night.lists["nvidia.package"]
    ]
    answer = judge(night.spec(), record_of(night))
    shown = render(Answer(inventory="x", checked="x", seconds=1.0, hosts=(answer,)))
    for part in blocks(README, "ws1  DRIFT"):
        assert f"{part}\n" in f"{shown}\n", shown


def test_the_explanation_in_the_readme_is_what_is_printed() -> None:
    (first, *_) = parts = blocks(README, "CUDA-06")
    log = " ".join(re.findall(r"^  (?:>|  )(.*)$", first.partition("\nWhy")[0], re.MULTILINE))
    shown = render_diagnosis(explain(" ".join(log.split())), catalogue())
    for part in parts:
        assert part in shown, shown


def lines_of(text: str) -> str:
    """The lines of a text without their indentation, and without the empty ones."""
    return "".join(f"\n{line.strip()}" for line in text.splitlines() if line.strip()) + "\n"


def test_the_code_that_contributing_shows_is_in_the_tree() -> None:
    tree = [
        lines_of(path.read_text(encoding="utf-8"))
        for folder in ("pyinfra_gpu", "tests")
        for kind in ("py", "yaml")
        for path in (PROJECT / folder).rglob(f"*.{kind}")
    ]
    code = r"^ *```(?:python|yaml)\n(.*?)^ *```$"
    shown = re.findall(code, DOCUMENTS["CONTRIBUTING.md"], re.MULTILINE | re.DOTALL)
    assert shown
    for block in shown:
        for part in re.split(r"^ *\.\.\.$", block, flags=re.MULTILINE):
            assert any(lines_of(part) in text for text in tree), part


def test_the_table_of_a_run_in_the_readme_is_what_is_printed() -> None:
    """Its stages are judged anew on a bare host; what that one took and measured is its own."""
    host = bare_gpu_host(
        data={
            **proven_host().data, "smoke": "auto", "rehearsal": True, "pytorch_version": "2.13.0",
            "pytorch_build": "cpu", "pytorch_lock": "ignore",
        }
    )  # fmt: skip
    took = {"pytorch": 66.2, "smoke": 85.6}
    stages = [
        {
            "stage": each.stage.value,
            "found": [
                finding.found
                for finding in each.findings
                if finding.id is not Id.PYTORCH_FETCHED_MEANWHILE  # which a plan alone notes
            ]
            or [each.summary],
            "changed": [finding.action for finding in each.findings if finding.acts],
            "deviations": [finding_as_json(finding) for finding in each.findings],
            "warnings": [],
            "problem": None,
            "unreadable": False,
            "seconds": took[each.stage.value],
        }
        for each in judge_stages(host.spec(), record_of(host))
        if each.stage.value in took
    ]
    run = {"status": "changed", "rehearsal": True, "stages": stages, "smoke": None}
    shown = render_run({"dry": False, "hosts": {"gpu1": run}})
    first, *_, last = blocks(README, "stage       found")
    table, summary = first.partition("\n\n")[0], last.rpartition("\n\n")[2]
    assert shown == f"{table}\n\n{summary}"


@pytest.mark.parametrize("name", ["docs/check.md", "examples/nightly/README.md"])
def test_the_exit_codes_of_check_are_listed(name: str) -> None:
    codes = re.findall(r"^\| (\d) \|", DOCUMENTS[name], re.MULTILINE)
    assert sorted(map(int, codes)) == sorted(EXIT_CODES.values())


def test_the_tables_of_drift_have_as_many_rows_as_is_said() -> None:
    text = DOCUMENTS["docs/what-it-ensures.md"]
    assert f"each of {len(DRIFTS)} kinds of drift" in text
    assert f"`tests/rehearsal/field_cases.py` has {len(CASES)} more" in text
