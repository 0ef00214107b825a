"""The page: whole, true, escaped, readable, and with nothing from outside."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import snapshots
import verdicts
from check_reports import REPORT, RESTART, SMOKE_OWED, UPGRADE, finding, host, stage, unreachable
from markupsafe import Markup
from verdicts import explained

from pyinfra_gpu import __version__, cli
from pyinfra_gpu.drift.cuda import NONE_DECLARED
from pyinfra_gpu.drift.finding import Id
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.report.check import cli as check_cli
from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.check.past import Past
from pyinfra_gpu.report.html import page as page_module
from pyinfra_gpu.report.html.page import page

FINDING = verdicts.found(cause="The disk is full: `df -h` says so.")
EVIL = "<script>alert(1)</script>\"'&"
STYLE = Path(page_module.__file__).with_name("style.css").read_text(encoding="utf-8")
METRICS: dict[str, Any] = {
    "allreduce": [
        {"kind": kind, "bytes": 4**power, "seconds": 0.1, "mb_per_s": 0.01 * 4**power}
        for kind in ("float32", "bfloat16")
        for power in (1, 4, 8, 12)
    ],
}
VERDICT: dict[str, Any] = verdicts.document(checks=[verdicts.check("S4.x")], metrics=METRICS)
SMOKE = explained(VERDICT)
FACTS = {
    "os": "Ubuntu 24.04.3 LTS",
    "kernel": "6.8.0-87-generic",
    "cpus": 32,
    "memory_mib": 131072,
    "gpus": ["RTX 5090", "RTX 5090"],
    "driver_loaded": "580.95.05",
    "driver_modules": "open",
    "driver_installed": "580.105.08",
    "libcuda": None,
    "cuda": {"unknown": "nvcc said nothing"},
    "torch": "2.14.1+cu130",
}


def words(text: str) -> str:
    """Return what a person reads of a page."""
    return str(Markup(text.partition("</style>")[2]).striptags())


def answer(*hosts: HostAnswer) -> Answer:
    return Answer(
        inventory="inventories/lab.py", checked="2026-11-21T11:00:03Z", seconds=3.2, hosts=hosts
    )


def fleet() -> Answer:
    """One host of every verdict, with everything that the page can show."""
    left_alone = finding(Id.TRAINING_LOCAL_CHANGES, "note", found="a local change")
    return answer(
        host(
            "good",
            stage("preflight"),
            stage("driver", found=""),
            stage("smoke"),
            smoke=SMOKE,
            facts=FACTS,
        ),
        host("waits", RESTART, SMOKE_OWED, smoke=SMOKE, history=(UPGRADE,) * 12),
        host("drifts", stage("cuda", REPORT), stage("training", left_alone)),
        unreachable("gone"),
    )


def test_the_whole_page() -> None:
    failed = verdicts.failed("S4.x", "rank 1 raised", tail=["one", "the end"])
    tested = {**VERDICT, "status": "fail", "failed": failed}
    told = fleet()
    told = replace(
        told,
        hosts=(
            *told.hosts,
            host("ws1", SMOKE_OWED, smoke=explained(tested, verdicts.answer(FINDING))),
        ),
    )
    text = page(told, [Past(when="t1", verdict="drift", hosts={"good": "drift"})] * 2)
    body = text.partition("</style>")[2].replace(__version__, "VERSION")
    snapshots.same("page.html", re.sub(r"\n\n+", "\n", body))


def test_an_old_smoke_test_is_not_shown_as_if_it_were_valid() -> None:
    old = "This test is not valid for what is installed now."
    assert old in words(page(answer(host("a", SMOKE_OWED, smoke=SMOKE))))
    assert old not in words(page(answer(host("a", smoke=SMOKE))))


def test_nothing_comes_from_outside() -> None:
    text = page(fleet(), [Past(when="x", verdict="drift", hosts={})])
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<script|<img|<iframe", text)
    assert not re.search(r"<[^>]* (src|on[a-z]+|href=\"[^#])", text)
    assert "default-src 'none'" in text


def test_whatever_a_host_says_is_escaped() -> None:
    change = replace(UPGRADE, command=f"apt {EVIL}", name=f"libcuda1{EVIL}")
    texts = {"found": EVIL, "expected": EVIL, "action": EVIL, "command": EVIL, "since": change}
    failed = verdicts.failed("S4.a", f"b {EVIL}", tail=[EVIL])
    document = {
        **VERDICT,
        "status": "fail",
        "label": EVIL,
        "checks": [verdicts.check("S4.a", "fail", detail=EVIL)],
        "failed": failed,
    }
    smoke = (explained(document), explained(document, verdicts.answer(verdicts.found(cause=EVIL))))
    hosts = tuple(
        host(
            f"gpu{EVIL}{number}",
            stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, **texts), unread=(EVIL,)),
            stage("smoke", finding(Id.SMOKE_UNPROVEN, "note", found=EVIL)),
            smoke=each,
            facts=dict.fromkeys(FACTS, EVIL) | {"gpus": [EVIL], "cuda": {"unknown": EVIL}},
            history=(change,),
        )
        for number, each in enumerate(smoke)
    )
    told = Answer(inventory=EVIL, checked=EVIL, seconds=1, hosts=hosts, reasons=(EVIL,))
    text = page(told, [Past(when=EVIL, verdict="drift", hosts={hosts[0].name: "drift"})] * 2)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 40


def test_the_worst_hosts_are_on_top_and_rehearsals_are_called_so() -> None:
    hosts = (host("gpu10"), host("gpu2", rehearsal=True), host("gpu3", stage("cuda", REPORT)))
    text = page(answer(*hosts, unreachable("gpu20")))
    names = re.findall(r'<a href="#host-\d+">([^<]*)</a>', text)
    assert names == ["gpu20", "gpu3", "gpu2", "gpu10"]
    assert re.findall(r"<summary><h2>([^<]*)</h2>", text) == names
    assert text.count('<span class="label">rehearsal</span>') == 2  # in the table, at its section
    assert "they prove nothing about a real GPU" in text
    assert "rehearsal" not in page(answer(host("ws1"))).replace(STYLE, "")


@pytest.mark.parametrize("number", [0, 1, 60])
def test_any_number_of_hosts_has_its_links_and_sections(number: int) -> None:
    text = page(answer(*(host(f"gpu{i}") for i in range(number))))
    anchors = re.findall(r'<details class="declared" id="([^"]*)"', text)
    assert anchors == re.findall(r'<a href="#([^"]*)"', text)
    assert len(set(anchors)) == number


def test_a_rate_has_a_bar_and_without_rates_there_is_no_table() -> None:
    text = page(answer(host("a", smoke=SMOKE)))
    assert re.findall(r"width: ([\d.]+)rem", text)[-1] == "10.0"
    assert "167772.2" in text
    nothing = {**METRICS["allreduce"][0], "mb_per_s": 0}
    for rows in ([], [nothing]):
        test = explained({**VERDICT, "metrics": {"allreduce": rows}})
        text = page(answer(host("a", smoke=test)))
        assert ("All-reduce by size" in text) is bool(rows)


def test_a_verdict_that_cannot_be_read_does_not_break_the_page() -> None:
    damaged = Verdict.read(json.dumps({**VERDICT, "metrics": 7}))
    text = words(page(answer(host("ws1", smoke=damaged))))
    assert "Smoke test The last verdict on the host cannot be read: metrics" in text


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["text", "quiet", "declared", "drift", "restart", "unknown"])
def test_every_text_can_be_read_on_its_background(mode: int, ink: str) -> None:
    pairs = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", STYLE)
    colours = {name: each[mode] for name, *each in pairs}
    backs = ["page", "card", f"{ink}-back"] if f"{ink}-back" in colours else ["page", "card"]
    for back in backs:
        light, dark = sorted((_luminance(colours[ink]), _luminance(colours[back])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, back)  # WCAG 2, level AA


# The verb.


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answer:
    """A check that has been made: what follows is only the page and the exit code."""
    told = answer(host("gpu1", RESTART))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(check_cli, "run", lambda *arguments: told)
    return told


def test_it_is_written_whole_and_the_exit_code_is_that_of_check(
    looked: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    assert cli.main(["report", "inventories/lab.py", "-o", str(target)]) == 3
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert "1 restart pending" in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.html*")] == ["report.html"]


def test_a_dash_prints_the_page_and_nothing_else(
    looked: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "inventories/lab.py", "-o", "-"]) == 3
    output = capsys.readouterr().out
    assert output.startswith("<!DOCTYPE html>")
    assert output.rstrip().endswith("</html>")


def test_a_page_that_cannot_be_written_is_exit_code_1(
    looked: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "x.py", "-o", str(tmp_path / "no" / "report.html")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    for taken in (tmp_path, Path("/dev/null")):
        assert cli.main(["report", "x.py", "-o", str(taken)]) == 1
        assert "it is not a file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []  # not even the check was kept: no host was looked at


def test_a_page_that_fails_in_the_middle_leaves_nothing(
    looked: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.html"
    target.write_text("yesterday's")

    def full(self: Path, *arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert cli.main(["report", "x.py", "-o", str(target)]) == 1
    assert target.read_text() == "yesterday's"
    assert [path.name for path in tmp_path.glob("*report*")] == ["report.html"]


def test_a_failed_smoke_test_that_nothing_explains_shows_its_last_lines() -> None:
    failed = verdicts.failed("S4.finished", f"rank 1 raised {EVIL}", tail=[EVIL, "the end"])
    test = explained({**VERDICT, "status": "fail", "failed": failed, "checks": FAILED})
    text = page(answer(host("ws1", SMOKE_OWED, smoke=test)))
    assert "the end" in text
    assert "<script>" not in text


FAILED = [verdicts.check("S4.finished", "fail", seconds=None)]


def test_a_degraded_pass_and_the_step_across_hosts_are_shown() -> None:
    across = verdicts.across_stamped()
    test = explained({**VERDICT, "status": "warn"})
    text = page(answer(host("ws1", smoke=test, across=across)))
    assert "pass, degraded" in text
    assert "multi-node step on 2 hosts PASS" in text


def test_the_torch_that_was_tested_is_named_and_so_is_a_fallback() -> None:
    tested = {**VERDICT, "software": {**VERDICT["software"], "torch": "2.12.0+cpu"}}
    test = explained(tested)
    falls_back = finding(Id.PYTORCH_FALLBACK, "report")
    as_told = page(answer(host("ws1", stage("pytorch", falls_back), smoke=test)))
    assert "torch 2.12.0+cpu, the fallback" in as_told
    as_declared = page(answer(host("ws1", smoke=test)))
    assert "torch 2.12.0+cpu" in as_declared
    assert "the fallback" not in as_declared


def test_it_follows_nobodys_link_and_keeps_the_files_mode(looked: Answer, tmp_path: Path) -> None:
    """The folder may be everybody's, and what lies there somebody's trap."""
    victim, target = tmp_path / "victim", tmp_path / "report.html"
    victim.write_text("precious", encoding="utf-8")
    (tmp_path / ".report.html.new").symlink_to(victim)
    assert cli.main(["report", "x.py", "-o", str(target)]) == 3
    assert victim.read_text() == "precious"
    umask = os.umask(0o022)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask
    target.chmod(0o640)
    assert cli.main(["report", "x.py", "-o", str(target)]) == 3
    assert target.stat().st_mode & 0o777 == 0o640


def test_checks_that_were_limited_to_other_hosts_are_not_among_the_last_ones() -> None:
    """Of those of the whole inventory, what they said of the hosts on the page counts."""
    checks = [
        *(Past(when=f"t{n}", verdict="drift", hosts={"c": "drift"}) for n in range(40)),
        Past(when="all", verdict="drift", hosts={"a": "declared", "b": "declared", "c": "drift"}),
        Past(when="all too", verdict="drift", hosts={"a": "drift", "b": "declared"}),
        *(Past(when=f"b{n}", verdict="drift", hosts={"b": "drift"}) for n in range(40)),
    ]
    header, _, rest = page(answer(host("a"), host("b")), checks).partition("</header>")
    assert re.findall(r'title="([^"]*)"', header) == ["all: as declared", "all too: drift"]
    assert "Last 2 checks, oldest first" in header
    assert 'title="b39: drift"' in rest
    assert 'title="b9: drift"' not in rest  # only the last 30
    assert 'title="t39' not in rest


def test_a_skipped_smoke_test_and_a_toolkit_nobody_declares_are_not_ok() -> None:
    skipped = finding(Id.SMOKE_SKIPPED, "note", found="skipped")
    judged = host("a", stage("cuda", found=NONE_DECLARED), stage("smoke", skipped))
    text = words(page(answer(judged)))
    assert "– not declared" in text  # noqa: RUF001
    assert "– skipped" in text  # noqa: RUF001
