"""The page: true, escaped, readable, and with nothing from outside."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import verdicts
from check_reports import (
    REPORT,
    RESTART,
    SMOKE_OWED,
    STOP,
    UPGRADE,
    finding,
    host,
    stage,
    unreachable,
)
from verdicts import explained

from pyinfra_gpu import cli
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.html import page as page_module
from pyinfra_gpu.report.html.page import page
from pyinfra_gpu.stages.cuda.findings import NONE_DECLARED
from pyinfra_gpu.stages.finding import Id

EVIL = "<script>alert(1)</script>\"'&"
STYLE = Path(page_module.__file__).with_name("style.css").read_text(encoding="utf-8")
RATES = [
    {"kind": "float32", "bytes": size, "seconds": 0.1, "mb_per_s": 0.01 * size}
    for size in (4, 256, 65536, 16777216)
]
VERDICT: dict[str, Any] = verdicts.document(checks=[verdicts.check("S4.x")], allreduce=RATES)
NO_RATES = {**VERDICT, "allreduce": [{**RATES[0], "mb_per_s": 0}]}
FAILED = {**VERDICT, "status": "fail", "checks": [verdicts.check("S4.x", "fail", seconds=None)]}
SMOKE = explained(VERDICT)
FACTS = {"os": "Ubuntu 24.04.3 LTS", "gpus": ["RTX 5090"] * 2, "libcuda": None}


def words(*hosts: HostAnswer) -> str:
    """Return what a person reads of a page."""
    body = page(answer(*hosts)).partition("</style>")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def answer(*hosts: HostAnswer) -> Answer:
    return Answer(inventory="lab.py", checked="2026-11-21T11:00:03Z", seconds=3.2, hosts=hosts)


def failing(diagnosis: Any = None, **changes: Any) -> HostAnswer:
    failed = verdicts.failed("S4.x", "rank 1 raised", tail=["one", "the end"], **changes)
    return host("ws1", SMOKE_OWED, smoke=explained({**FAILED, "failed": failed}, diagnosis))


SHOWN: dict[str, tuple[HostAnswer, str]] = {
    "a finding": (host("a", stage("cuda", REPORT)), "cuda.shell-path found cuda.shell-path"),
    "since when": (host("a", RESTART), "2026-11-21 06:12 (the host's time): libcuda1 580.95.05-1"),
    "what is not checked": (host("a", stage("preflight", STOP)), "stops before: driver, packages"),
    "why it is undetermined": (unreachable("a", "timed out"), "could not be reached: timed out"),
    "a note": (host("a", stage("smoke", replace(REPORT, effect="note"))), "Notes cuda.shell-path"),
    "versions": (host("a", facts=FACTS), "gpus 2 x RTX 5090 libcuda none"),
    "what cannot be told": (host("a", facts={"cuda": {"unknown": "x"}}), "cuda unknown: x"),
    "packages": (host("a", history=(UPGRADE,) * 12), "and 2 more before"),
    "a cause": (failing(verdicts.answer(verdicts.found(cause="`df` says so"))), "df says so"),
    "a log": (failing(), "last lines one the end"),
    "an old test": (host("a", SMOKE_OWED, smoke=SMOKE), "not valid for what is installed now"),
    "a test that cannot be read": (
        host("a", smoke=Verdict.read(json.dumps({**VERDICT, "allreduce": 7}))),
        "The last verdict on the host cannot be read: allreduce",
    ),
    "a degraded pass": (host("a", smoke=explained({**VERDICT, "status": "warn"})), "pass, degra"),
    "the step across hosts": (
        host("a", stage("smoke", found="with ws2: passed earlier"), smoke=SMOKE),
        "with ws2: passed earlier",
    ),
    "rates": (host("a", smoke=SMOKE), "167772.2"),
    "rates of nothing": (host("a", smoke=explained(NO_RATES)), "All-reduce by size"),
    "the torch that was tested": (host("a", smoke=SMOKE), "torch 2.14.1, 1 of 1 checks"),
    "a toolkit nobody declares": (host("a", stage("cuda", found=NONE_DECLARED)), "not declared"),
    "a skipped test": (host("a", stage("smoke", finding(Id.SMOKE_SKIPPED, "note"))), "skipped"),
}


@pytest.mark.parametrize("fact", SHOWN)
def test_it_is_on_the_page_and_not_on_that_of_a_healthy_host(fact: str) -> None:
    shown, text = SHOWN[fact]
    assert text in words(shown)
    assert text not in words(host("healthy"))


def test_nothing_comes_from_outside() -> None:
    hosts = [shown for shown, _ in SHOWN.values()]
    text = page(answer(*hosts))
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<script|<img|<iframe", text)
    assert not re.search(r"<[^>]* (src|on[a-z]+|href=\"[^#])", text)
    assert "default-src 'none'" in text


def test_whatever_a_host_says_is_escaped() -> None:
    change = replace(UPGRADE, command=f"apt {EVIL}", name=f"libcuda1{EVIL}")
    texts = {"found": EVIL, "expected": EVIL, "action": EVIL, "command": EVIL, "since": change}
    failed = verdicts.failed("S4.x", f"b {EVIL}", tail=[EVIL])
    checks = [verdicts.check("S4.x", "fail", detail=EVIL, seconds=None)]
    document = {**FAILED, "checks": checks, "failed": failed}
    known = verdicts.answer(verdicts.found(cause=EVIL))
    hosts = tuple(
        host(
            f"gpu{EVIL}{number}",
            stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, **texts), unread=(EVIL,)),
            stage("smoke", finding(Id.SMOKE_UNPROVEN, "note", found=EVIL)),
            smoke=smoke,
            facts=dict.fromkeys(FACTS, EVIL) | {"gpus": [EVIL], "cuda": {"unknown": EVIL}},
            history=(change,),
        )
        for number, smoke in enumerate((explained(document), explained(document, known)))
    )
    reported = Answer(inventory=EVIL, checked=EVIL, seconds=1, hosts=hosts, reasons=(EVIL,))
    text = page(reported)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 40


def test_the_worst_hosts_are_on_top_with_their_links_and_rehearsals_are_called_so() -> None:
    hosts = (host("gpu10"), host("gpu2", rehearsal=True), host("gpu3", stage("cuda", REPORT)))
    text = page(answer(*hosts, unreachable("gpu20")))
    links = re.findall(r'<a href="#(host-\d+)">([^<]*)</a>', text)
    assert [name for _, name in links] == ["gpu20", "gpu3", "gpu2", "gpu10"]
    sections = re.findall(r'<details class="\w+" id="([^"]*)".*?\n<summary><h2>([^<]*)</h2>', text)
    assert sections == links
    assert text.count('<span class="label">rehearsal</span>') == 2  # in the table, at its section
    assert "they prove nothing about a real GPU" in text
    assert "rehearsal" not in page(answer(host("ws1"))).replace(STYLE, "")


# The verb.


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the page goes; the check has been made, and owes a restart."""
    reported = answer(host("gpu1", RESTART))
    monkeypatch.setattr(page_module, "run", lambda *arguments: reported)
    return tmp_path / "report.html"


def test_it_is_written_whole_and_the_exit_code_is_that_of_check(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "x.py", "-o", str(target)]) == 3
    assert "1 restart pending" in capsys.readouterr().out
    assert cli.main(["report", "x.py", "-o", "-"]) == 3
    assert capsys.readouterr().out.endswith("</html>\n")
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in target.parent.glob("*.html*")] == ["report.html"]
    target.chmod(0o640)
    assert cli.main(["report", "x.py", "-o", str(target)]) == 3
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_page_that_cannot_be_written_is_exit_code_1(
    target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for taken, why in ((target / "x.html", "is not a folder"), (target.parent, "is a directory")):
        assert cli.main(["report", "x.py", "-o", str(taken)]) == 1
        assert why in capsys.readouterr().err
    assert list(target.parent.iterdir()) == []
    target.write_text("yesterday's")

    def full(self: Path, *arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert cli.main(["report", "x.py", "-o", str(target)]) == 1
    assert "cannot be written: No space left" in capsys.readouterr().err
    (left,) = target.parent.iterdir()
    assert (left.name, left.read_text()) == ("report.html", "yesterday's")
