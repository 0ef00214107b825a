"""The launcher as it travels: one file that runs alone, and a run of it from start to end here."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis.catalogue import for_hosts
from pyinfra_gpu.on_host.train import claims, host, supervise
from pyinfra_gpu.on_host.train.supervise import AGAIN


@cache
def bundle() -> bytes:
    return on_host.train_bundle(sys.executable, for_hosts())


class Here:
    """A prefix on this machine, with a checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "train", "state", "checkout"):
            (folder / name).mkdir()
        self.program = folder / "bin/train"
        self.program.write_bytes(bundle())
        self.program.chmod(0o755)
        (folder / "x.env").write_text('NCCL_DEBUG=WARN\nWANDB_API_KEY="0123456789"\n')
        self.site(
            presets={
                "tick": {"file": "tick.py", "launch": "python", "arguments": {"steps": 3}},
                "big": {
                    "file": "tick.py",
                    "launch": "python",
                    "checkpoint_gib": 1 << 19,
                },
            }
        )
        lines = "import os, sys\nprint('step 1/3  loss 0.5', flush=True)\n"
        subprocess.run(["git", "init", "-q", folder / "checkout"], check=True)
        self.commit(lines + "sys.exit(len(sys.argv[1:]) - 1)\n")

    def commit(self, lines: str) -> None:
        """Make this the program that is trained."""
        (self.folder / "checkout/tick.py").write_text(lines)
        for words in (("add", "."), ("commit", "-qm", "one")):
            identity = ("-c", "user.name=x", "-c", "user.email=x@y")
            subprocess.run(["git", *identity, "-C", self.folder / "checkout", *words], check=True)

    def site(self, **changed: Any) -> None:
        path = self.folder / "train/site.json"
        document = {
            "prefix": str(self.folder),
            "python": sys.executable,
            "checkout": str(self.folder / "checkout"),
            "env_file": str(self.folder / "x.env"),
            "env_names": ["NCCL_DEBUG", "WANDB_API_KEY"],
            "state": str(self.folder / "state"),
            "stamp": str(self.folder / "stamp.json"),
            "owner": getpass.getuser(),
            "accelerator": "cpu",
            "ranks": 1,
            "torch": "2.13.0",
            **(json.loads(path.read_text()) if path.exists() else {}),
            **changed,
        }
        path.write_text(json.dumps(document))

    def train(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def test_the_same_sources_give_the_same_bytes() -> None:
    assert bundle() == on_host.train_bundle(sys.executable, for_hosts())
    assert len(bundle()) < 4 << 20  # of a larger file the look at a host makes no digest


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_it_runs_alone_with_nothing_beside_it(here: Here) -> None:
    done = here.train("--help")
    assert done.returncode == 0
    assert "start" in done.stdout
    assert here.train("list").stdout == "there is no run yet: begin one with `train start tick`\n"
    assert json.loads(here.train("list", "--json").stdout) == {"schema": 1, "runs": []}


def test_all_that_is_in_the_way_is_said_at_once_with_its_remedy_and_no_secret(here: Here) -> None:
    here.site(checkout=str(here.folder / "state"))
    (here.folder / "x.env").unlink()
    done = here.train("start", "big", "--dry", "--", "--api-key=0123456789")
    assert done.returncode == 1
    for words in (
        "no smoke test has passed here",
        "is no checkout with a commit",
        "two checkpoints need",
        "--api-key looks like a secret",
        "x.env cannot be read",
    ):
        assert words in done.stderr
    assert "0123456789" not in done.stdout + done.stderr


def test_dry_prints_the_command(here: Here) -> None:
    done = here.train("start", "tick", "--dry", "--unproven", "--set", "steps=5", "--", "--more")
    assert f"{sys.executable} -u tick.py --steps=5 --more" in done.stdout
    assert not (here.folder / "state/runs").exists()


def written(here: Here, arguments: dict[str, Any], retries: int = 0, **more: Any) -> Path:
    """Write a run down as `start` does.

    + more: of what its supervisor is told
    """
    name = f"20261122-20000{len(list((here.folder / 'state').glob('runs/*')))}-tick"
    folder = here.folder / "state/runs" / name
    folder.mkdir(parents=True)
    words = [sys.executable, "-u", "tick.py", *(f"--{n}={v}" for n, v in arguments.items())]
    head = ["git", "-C", str(here.folder / "checkout"), "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    document = {
        "schema": 1, "preset": "tick", "command": words, "unproven": True, "retries": retries,
        "created": "2026-11-22T20:00:00.000Z", "state": "starting", "attempts": [],
        "spec": {"file": "tick.py", "launch": "python"},
        "code": [["", commit, commit]], "devices": ["cpu"], **more,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(document))
    return folder


def supervised(
    here: Here, arguments: dict[str, Any], retries: int = 0
) -> tuple[dict[str, Any], Path]:
    """Write a run down, and be its unit."""
    folder = written(here, arguments, retries)
    while (done := here.train("supervise", folder.name)).returncode == AGAIN:
        pass  # as its unit does
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run.json").read_text()), folder


@pytest.mark.parametrize(
    ("arguments", "outcome", "code", "first"),
    [({"a": 1}, "finished", 0, None), ({"a": 1, "b": 1}, "failed", 1, 0)],
)
def test_the_supervisor_writes_down_how_a_run_ends(
    here: Here, arguments: dict[str, Any], outcome: str, code: int, first: int | None
) -> None:
    """It begins again after a failure that passes, and this one does not."""
    document, folder = supervised(here, arguments, retries=2)
    (attempt,) = document["attempts"]
    assert document["state"] == "ended"
    assert (attempt["outcome"], attempt["exit"]) == (outcome, code)
    assert attempt["first_failed_rank"] == first
    log = (folder / "attempts/1/rank0.log").read_text()
    assert log.endswith("Z step 1/3  loss 0.5\n")
    metric = json.loads((folder / "metrics.jsonl").read_text())
    assert (metric["step"], metric["loss"], metric["attempt"]) == (1, 0.5, 1)
    assert not list((folder / "attempts/1").glob(".rank*"))
    assert f"{'1/3':4}" in here.train("list").stdout
    assert outcome in here.train("watch", "--once").stdout
    if outcome == "failed":
        assert "No cause found" in here.train("why").stdout
    else:
        assert "has finished, nothing of it is left to do" in here.train("resume").stderr


# A training that fails at its first start and not at its second, after what the argument says.
FAILS_ONCE = """
import pathlib, sys
seen = pathlib.Path("seen")
if seen.exists():
    print("step 2/2  loss 0.25", flush=True)
else:
    seen.touch()
    sys.exit(sys.argv[1].partition("=")[2])
"""
BROKEN_OFF = "urllib3.exceptions.IncompleteRead: IncompleteRead(7 bytes read, 13 more expected)"


def messages(here: Here) -> list[dict[str, Any]]:
    """Have what is told appended to a file, and return the file's documents so far."""
    reported = here.folder / "told"
    here.site(notify=["/bin/sh", "-c", f"cat >> {reported}; env >> {reported}.env; exit 7"])
    return (
        [json.loads(line) for line in reported.read_text().splitlines()]
        if reported.exists()
        else []
    )


def test_the_owner_is_told_by_the_declared_command_and_never_a_secret(here: Here) -> None:
    here.site(retry_wait_s=1)
    here.commit(FAILS_ONCE)
    messages(here)
    document, folder = supervised(here, {"why": BROKEN_OFF}, 1)
    first, second, third = reported = messages(here)
    assert [each["event"] for each in reported] == ["failed", "resumed", "finished"]
    assert {each["run"] for each in reported} == {document["run"]}
    assert first["attempts"][0] | {"cause": "download-broke-off", "exit": 1} == first["attempts"][0]
    assert "retry 1 of 1 after download-broke-off" in first["waits"]
    assert first["why"].startswith("A server broke off a download")
    assert (len(second["attempts"]), second["waits"], second["resumed_from"]) == (2, "", None)
    last = third["last"]
    assert (last["step"], last["steps"], last["loss"], third["outcome"]) == (2, 2, 0.25, "finished")
    assert "0123456789" not in (here.folder / "told.env").read_text()  # of the env file
    log = "".join(path.read_text() for path in folder.glob("attempts/*/launcher.log"))
    assert log.count("the command of training_notify ended with 7") == 3
    attempts = [(each["outcome"], each["cause"]) for each in document["attempts"]]
    assert attempts == [("failed", "download-broke-off"), ("finished", None)]
    assert (document["state"], document["waits"]) == ("ended", "")
    assert "loss 0.25" in (folder / "attempts/2/rank0.log").read_text()


@pytest.mark.parametrize(
    ("command", "said"),
    [(["/bin/sh", "-c", "sleep 60"], "did not end within"), (["/nowhere"], "cannot be run")],
)
def test_a_command_that_is_told_and_does_not_end_or_is_not_there_is_a_line(
    command: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervise, "_NOTIFY_S", 0.2)
    supervise.notified(command, {"event": "failed"}, supervise.log_to(tmp_path / "log", 1))
    assert said in (tmp_path / "log").read_text()


REPLACED = """
import pathlib, sys
program = pathlib.Path(sys.argv[1].partition("=")[2])
program.with_suffix(".new").write_bytes(b"another one")
program.with_suffix(".new").replace(program)
open("train.bin")
"""


def test_a_run_is_explained_by_the_program_that_it_began_with(here: Here) -> None:
    """A deploy replaces it, and what was not loaded by then could not be any more."""
    here.commit(REPLACED)
    folder = written(here, {"program": here.program})
    done = here.train("supervise", folder.name)
    assert done.returncode == 0, done.stderr
    document = json.loads((folder / "run.json").read_text())
    assert [each["cause"] for each in document["attempts"]] == ["file-not-found"]


ODD = r"""
import sys
out = sys.stdout.buffer
out.write(b"a\n1%\r2%\r\n\xff\n" + b"x" * 70000 + b"\n")
out.write(b"".join(b"line %04d\n" % n for n in range(2000)) + b"no end")
"""


def test_a_log_has_each_line_with_its_time_and_stays_small_whatever_is_printed(here: Here) -> None:
    here.site(log_mib=1 / 16)
    here.commit(ODD)
    _, folder = supervised(here, {"a": 1})
    files = [folder / f"attempts/1/rank0.log{end}" for end in (".2", ".1", "")]
    assert sorted(folder.glob("attempts/1/*")) == sorted(files)
    assert all(path.stat().st_size <= 64 << 10 for path in files)
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert all(line[10] == "T" and line[23:25] == "Z " for line in lines)
    reported = [line[25:] for line in lines]
    assert reported[-2001:] == [*(f"line {n:04}" for n in range(2000)), "no end"]
    here.site(log_mib=1)
    _, folder = supervised(here, {"a": 1})
    begin = (folder / "attempts/1/rank0.log").read_text().splitlines()[:5]
    assert [line[25:][:3] for line in begin] == ["a", "1%", "2%", "\ufffd", "xxx"]


def test_a_supervisor_whose_device_is_taken_says_by_whom(here: Here) -> None:
    folder = written(here, {"a": 1})
    given = json.loads((here.folder / "train/site.json").read_text())
    site = host.Site(**given)
    taken = claims.claim(site, "20261122-190000-other", [host.CPU], 1, claims.Held())
    done = here.train("supervise", folder.name)
    assert isinstance(taken, claims.Held)
    taken.release()
    assert done.returncode == 1
    refused = json.loads((folder / "run.json").read_text())["refused"]
    assert refused.startswith("what it needs is taken by 2026")
