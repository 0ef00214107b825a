"""The items of `collect`: told apart by a word of the run's own, and run by the program itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import collected
from pyinfra_gpu.report.collect import archive
from pyinfra_gpu.report.collect.gathering import Collected, items, read_items

MARK = "0123456789abcdef"


def ran(path: str, *arguments: str, uses: tuple[str, ...] = ()) -> list[str]:
    done = subprocess.run(
        ["sh", "-c", program(path, MARK, *arguments, uses=uses)],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_every_item_answers_on_a_machine_without_any_gpu() -> None:
    lines = [
        line
        for path in ("collect/system.sh", *collected())
        for line in ran(path, uses=("collect/item.sh",))
    ]
    found = dict(read_items(lines, MARK))
    assert "PRETTY_NAME" in found["os-release"]
    assert "command not found" in found["nvidia-smi"] or "not found" in found["nvidia-smi"]
    names = [name for name, _ in items()]
    assert len(names) == len(set(names)) > 20
    assert set(found) <= set(names)


def test_a_name_that_cannot_be_resolved_makes_no_names_of_the_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaint = "hostname: Name or service not known"
    (tmp_path / "hostname").write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    (tmp_path / "hostname").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    lines = ran("collect/system.sh", uses=("collect/item.sh",))
    names = dict(read_items(lines, MARK))["names"].split()
    assert names[:2] == [os.uname().nodename] * 2
    assert "service" not in names


def test_what_an_item_prints_ends_no_item() -> None:
    lines = [f"{MARK} item log", "x item y", "feed item evil", f"{MARK} status", "stray"]
    assert dict(read_items(lines, MARK)) == {"log": "x item y\nfeed item evil\n"}


def test_an_item_that_was_cut_off_says_so() -> None:
    assert dict(read_items([f"{MARK} item log", "one"], MARK)) == {"log": "one\n(cut off)\n"}


def test_the_owners_files_are_named_below_their_folder_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text("{}\n")
    (tmp_path / "evidence-1").mkdir()
    (tmp_path / "evidence-1/rank0.log").write_text("NCCL INFO\n")
    (tmp_path / "a\nb.json").write_text("odd\n")
    (tmp_path / "fifo.json").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "fifo.json")
    found = dict(read_items(ran("collect/owner.sh", str(tmp_path)), MARK))
    assert found == {"verdict.json": "{}\n", "evidence-1/rank0.log": "NCCL INFO\n"}


def test_a_name_that_leaves_the_folder_is_no_items() -> None:
    lines = [f"{MARK} item ../../etc/passwd", "x", f"{MARK} status"]
    assert dict(read_items(lines, MARK)) == {}


def test_an_archive_holds_the_files_and_gives_the_record_back(tmp_path: Path) -> None:
    probe = "pyinfra-gpu-probe 1\nsystem.kernel =6.1\npyinfra-gpu-probe end\n"
    host = Collected(name="ws1", files={"probe.txt": probe}, masks={"host": 2})
    path = archive.write(tmp_path, 1, host, "2026-11-22 21:00 UTC")
    assert path.name == "host-1.tar.gz"
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"ws1" not in path.read_bytes()
    text = archive.fixture(path)
    first, _, rest = text.partition("\n")
    assert first.startswith("# recorded: by `pyinfra-gpu collect` on 2026-11-22")
    assert rest == probe
