"""The launcher's parts that stand on files and locks, on a host that is a folder."""

from __future__ import annotations

import ast
import errno
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis.catalogue import for_hosts
from pyinfra_gpu.on_host.smoke.nvidia_smi import Answer
from pyinfra_gpu.on_host.train import (
    checks,
    claims,
    cli,
    code,
    host,
    listing,
    presets,
    runs,
    starting,
    supervise,
    units,
    why,
)
from pyinfra_gpu.on_host.train.host import CPU, Site, TrainError
from pyinfra_gpu.on_host.train.metrics import MetricReader, Metrics, history
from pyinfra_gpu.on_host.train.runs import Run
from pyinfra_gpu.on_host.train.supervise import Log

GPUS = [f"GPU-{os.getpid():07}-{name}" for name in "ab"]  # names are the whole machine's
NAME = "20261122-200000-tiny"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    state = tmp_path / "state"
    (state / "runs").mkdir(parents=True)
    monkeypatch.setattr(units, "on", set)
    return Site(
        prefix=str(tmp_path),
        python=str(tmp_path / "venv/bin/python"),
        checkout=str(tmp_path / "checkout"),
        env_file=str(tmp_path / "x.env"),
        env_names=[],
        state=str(state),
        stamp=str(tmp_path / "stamp.json"),
        owner=None,
        accelerator="nvidia",
        ranks=2,
        torch="2.13.0",
    )


def written(site: Site, name: str = NAME, log: str = "", **fields: Any) -> Run:
    """Write a run down, ended unless it is said otherwise, and read it."""
    folder = site.runs / name
    (folder / "attempts/1").mkdir(parents=True)
    outcome = fields.pop("outcome", "failed")
    attempt = {"number": 1, "started": host.now(-60), "ended": host.now(), "outcome": outcome}
    attempt |= {"boot_id": host.boot_id(), "exit": 1, **fields.pop("attempt", {})}
    document = {
        "schema": 1,
        "run": name,
        "state": "ended",
        "preset": "tiny",
        "gpus": GPUS,
        "created": host.now(-60),
        "attempts": [attempt],
        "spec": {"file": "train.py"},
        **fields,
    }
    (folder / "run.json").write_text(json.dumps(document))
    stamped = "".join(f"{host.now()} {line}\n" for line in log.splitlines())
    (folder / "attempts/1/rank0.log").write_text(stamped)
    return runs.read(folder)


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# -- Python 3.10, which Ubuntu 22.04 has

NEWER = {"UTC", "StrEnum", "tomllib", "ExceptionGroup", "TaskGroup", "batched", "override", "Self"}


def test_the_launcher_has_nothing_of_a_newer_python() -> None:
    """`datetime.UTC` made every command on Ubuntu 22.04 a traceback."""
    folder = Path(on_host.__file__).parent
    names = ("terminal.py", "fingerprint.py", "smoke/files.py", "smoke/nvidia_smi.py")
    others = (*folder.glob("diagnosis/*.py"), *(folder / name for name in names))
    for path in (*folder.glob("train/*.py"), *others):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = (
            node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)
        )
        used |= {alias.name for node in imported for alias in node.names}
        assert not used & NEWER, path
        assert not any(isinstance(node, ast.TryStar) for node in ast.walk(tree))
    assert host.moment("2026-11-22T20:00:00.123Z") == 1795377600.123
    assert host.moment("no time") is None


# -- the code of a run


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@y")
    run = ["git", *who, "-C", str(folder), *words]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(site: Site) -> Path:
    folder = Path(site.checkout)
    folder.mkdir()
    put(folder / "train.py", "one\n")
    put(folder / ".gitignore", "data/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def test_the_code_of_a_run_is_the_commit_and_what_was_changed_in_it(
    checkout: Path, tmp_path: Path
) -> None:
    """Of a worktree that was half made a run went on without the uncommitted changes."""
    inner, there = tmp_path / "inner", tmp_path / "code"
    put(inner / "lib.py", "one\n")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "one")
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "lib x")
    git(checkout, "commit", "-qm", "two")
    changed = ("train.py", "new.py", "lib x/lib.py")
    for name in (*changed, "data/large.bin"):
        put(checkout / name, "two\n")
    before = git(checkout, "status", "--porcelain")
    kept = code.snapshot(checkout)
    assert git(checkout, "status", "--porcelain") == before
    put(checkout / "train.py", "three\n")
    git(checkout, "worktree", "add", "-q", "--detach", str(there), "HEAD")
    for _ in range(2):
        code.lay_out(checkout, there, NAME, kept)
    assert [(there / name).read_text() for name in changed] == ["two\n"] * 3
    assert not (there / "data").exists()
    assert git(there, "rev-parse", "HEAD") == kept[0][1] == code.head(checkout)
    code.forget(checkout, NAME, kept)
    assert git(checkout, "for-each-ref", "refs/train") == ""


# -- logs and metrics


def test_logs_that_are_followed_lose_no_line_at_a_rotation(
    site: Site, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """After a rotation the rest of the old file was never read: 142 of 201 lines were shown."""
    run = written(site, state="running", outcome=None)
    log, looks = Log(run.attempt() / "rank0.log", 2000 / (1 << 20)), iter(range(12))
    monkeypatch.setattr(units, "on", lambda: {run.run} if next(looks, None) is not None else set())
    numbers = iter(range(400))

    def write(seconds: float) -> None:
        for _ in range(20):  # 700 bytes between two looks
            log.write(f"line {next(numbers, 399):03}")

    monkeypatch.setattr(cli.time, "sleep", write)
    with os.fdopen(os.dup(1), "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        cli._printed(run, None, "rank0.log", True)
    lines = capfdbinary.readouterr().out.split(b"\n")
    shown = [int(line[-3:]) for line in lines if b"line" in line]
    assert len(shown) > 100
    assert shown == [*range(len(shown))]


def test_metrics_never_end_and_a_long_run_is_not_called_stalled(tmp_path: Path) -> None:
    """After 64 MiB nothing was written any more, and the run was called stalled until its end."""
    path = tmp_path / "metrics.jsonl"
    metrics, reader = Metrics(path, 1, largest=10_000), MetricReader()
    for step in range(1, 1001):
        metrics.read(reader, f"step {step}/1000  loss {4 / step:.4f}")
        assert path.stat().st_size < 10_200
    seen = history(path, 1)
    assert seen.last["step"] == 1000
    assert seen.stalled(time.time()) is None
    assert seen.losses[0] < 4


def test_a_history_is_of_the_last_attempt_and_its_curve_of_all(tmp_path: Path) -> None:
    lines = [
        {"time": host.now(), "attempt": 1, "step": 5, "loss": None, "not_finite": "nan"},
        {"time": host.now(), "attempt": 1, "step": 6, "loss": 2.0},
        {"time": host.now(), "attempt": 2, "step": 1, "loss": 1.0},
        {"time": host.now(), "attempt": 2, "step": 2, "loss": None, "not_finite": "inf"},
        {"time": host.now(), "attempt": 2, "step": 3, "loss": None, "not_finite": "nan"},
    ]
    put(tmp_path / "m", "".join(f"{json.dumps(line)}\n" for line in lines) + "torn {")
    seen = history(tmp_path / "m", 2)
    assert (seen.last["step"], seen.losses, seen.not_finite) == (3, [2.0, 1.0], (2, "inf"))
    assert history(tmp_path / "m", 1).not_finite is None


def test_the_rank_that_failed_first_is_read_from_torchruns_summary() -> None:
    summary = (
        "[0]:\n  time      : 2026-11-22_20:00:00\n  rank      : 0 (local_rank: 0)\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-22_19:00:00\n"
        "  host      : ws1\n  rank      : 5 (local_rank: 1)\n  exitcode  : -9\n"
    )
    found = supervise._FIRST.search(summary)
    assert found is not None
    assert found.groups() == ("2026-11-22_19:00:00", "5")


# -- who has what


def test_devices_are_claimed_all_or_none_and_a_gpu_is_one_for_all_prefixes_of_a_host(
    site: Site, tmp_path: Path
) -> None:
    """Two owners, each with a prefix, trained on the same two GPUs at once."""
    other = Site(**{**vars(site), "state": str(tmp_path)})
    first = claims.claim(site, "one", [GPUS[0], CPU], 2, None)
    assert isinstance(first, claims.Held)
    assert claims.claim(other, "two", GPUS, 2, None) == ["one"]
    assert claims.holders(site, GPUS) == {GPUS[0]: "one"}
    assert isinstance(claims.claim(other, "two", [CPU], 1, None), claims.Held)
    first.release()
    assert claims.holders(site, GPUS) == {}


def test_who_waits_comes_first_and_in_order(site: Site) -> None:
    held = claims.claim(site, "zero", GPUS, 2, None)
    assert isinstance(held, claims.Held)
    one, two = claims.wait(site, "one", GPUS), claims.wait(site, "two", GPUS)
    assert claims.ahead("two") == ["one"]
    held.release()
    assert claims.claim(site, "two", GPUS, 1, two) == ["one"]
    assert claims.claim(site, "jumper", GPUS, 1, None) == ["one", "two"]
    got = claims.claim(site, "one", GPUS, 1, one)
    assert isinstance(got, claims.Held)
    one.release()
    assert isinstance(claims.claim(site, "two", GPUS, 1, two), claims.Held)
    two.release()


def _race(site: Site, number: int, results: Any, over: Any) -> None:
    got = claims.claim(site, f"run{number}", GPUS, 1, None)
    results.put(got.devices if isinstance(got, claims.Held) else [])
    over.wait(60)


def test_of_twenty_that_race_for_two_gpus_two_get_one_each(site: Site) -> None:
    context = multiprocessing.get_context("fork")
    # Simple: a queue's own thread would be gevent's where pyinfra's command line was imported.
    results, over = context.SimpleQueue(), context.Event()
    racing = [context.Process(target=_race, args=(site, n, results, over)) for n in range(20)]
    for process in racing:
        process.start()
    devices = [device for _ in racing for device in results.get()]
    over.set()
    for process in racing:
        process.join(10)
    assert sorted(devices) == GPUS
    assert claims.holders(site, GPUS) == {}


def test_a_look_writes_nothing_and_works_on_a_read_only_disk(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking removed tickets, and `why` of a queued run ended with EROFS."""
    held = claims.claim(site, "one", GPUS, 2, None)
    monkeypatch.setattr(units, "on", lambda: {NAME})
    queued = written(site, state="queued", outcome=None, devices=GPUS, ranks=1)
    opened = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "read-only", str(path))
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    found = why.explain(site, runs.read(queued.folder))
    assert found.facts == ["it waits for 1 of 2 GPUs, taken by one"]
    assert isinstance(held, claims.Held)


# -- run.json, whole or not


def test_a_run_that_nobody_supervises_is_lost_and_looking_does_not_write_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = written(site, state="running", outcome=None)
    assert (run.outcome, run.over) == ("lost", True)
    assert json.loads((run.folder / "run.json").read_text())["state"] == "running"
    monkeypatch.setattr(units, "on", lambda: {run.run})
    assert runs.read(run.folder).state == "running"


def test_what_is_written_is_read_again(site: Site) -> None:
    run = written(site, words=["--lr", "3"], part={"hosts": ["a", "b"]})
    run.save()
    assert runs.read(run.folder) == run


DAMAGED = {
    "no JSON": '{"state": ',
    "another version": '{"schema": 2, "state": "running", "attempts": []}',
    "no object": "3",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_foreign_record_keeps_nobody_from_stopping_or_listing(
    what: str,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Orders that were damaged, or a run of another version, made `stop` refuse."""
    stopped: list[str] = []
    good = written(site, state="running", outcome=None)
    bad = written(site, f"{NAME}-2")
    (bad.folder / "run.json").write_text(DAMAGED[what])
    put(bad.folder / "request.json", '{"preset": ')
    monkeypatch.setattr(units, "on", lambda: {good.run, bad.run} - {*stopped})
    monkeypatch.setattr(units, "stop", lambda run, seconds: stopped.append(run))
    monkeypatch.setattr(host, "load", lambda: site)
    assert cli.main(["list", "--json"]) == 0
    states = [each["state"] for each in json.loads(capsys.readouterr().out)["runs"]]
    assert states == ["running", "running"]
    with pytest.raises(TrainError, match="may be 2 runs"):
        starting.stop(site, None)
    assert cli.main(["stop", bad.run]) == 0
    assert cli.main(["stop"]) == 0
    assert stopped == [bad.run, good.run]
    last = json.loads((good.folder / "run.json").read_text())["attempts"][0]
    assert (last["outcome"], last["exit"]) == ("stopped", -9)
    assert "on this host" in last["stopped_by"]
    assert cli.main(["list"]) == 0
    assert f"the record of run {bad.run} is damaged" in " ".join(capsys.readouterr().out.split())


def test_runs_that_a_reboot_cut_off_go_on_each_for_itself_where_the_host_is_proven(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An OSError of the first ended `train again`, and all waited for a day for nobody."""
    cut_off: dict[str, Any] = {"outcome": "lost", "attempt": {"boot_id": "another"}}
    waits = {"after_reboot": 1e9, "unproven": True, **cut_off}
    first, second = (written(site, f"{NAME}{end}", **waits) for end in ("", "-2"))
    unproven = written(site, f"{NAME}-3", **{**waits, "unproven": False})
    assert (unproven.state, unproven.over, unproven.waits_for_boot) == ("waiting", False, True)
    facts = " ".join(why.explain(site, unproven).facts)
    assert "for no smoke test has passed here: run `pyinfra INVENTORY tasks/smoke.py`" in facts
    others: list[dict[str, Any]] = [
        {"after_reboot": 0}, {"after_reboot": 1e-9}, {"outcome": "failed"},
        {"attempt": {"boot_id": host.boot_id()}},
    ]  # fmt: skip
    for number, each in enumerate(others):
        assert written(site, f"{NAME}-{number + 4}", **{**waits, **each}).over
    tried: list[str] = []

    def go_on(site: Site, run: Run, point: object, **more: object) -> None:
        tried.append(run.run)
        assert (point, more) == (None, {"gpus": "", "queue": True})
        if run.run == first.run:
            raise OSError(errno.ENOSPC, "No space left on device")
        run.state, run.after_reboot = "ended", 0
        run.save()

    looks = iter([None])
    monkeypatch.setattr(starting, "go_on", go_on)
    monkeypatch.setattr(starting.time, "sleep", lambda seconds: next(looks))
    with pytest.raises(StopIteration):
        starting.again(site)
    assert tried == [first.run, second.run, first.run]
    assert f"{first.run}: [Errno 28] No space left" in capsys.readouterr().err
    monkeypatch.setattr(units, "stop", lambda run, seconds: None)
    assert starting.stop(site, first.run) == 0
    assert capsys.readouterr().out == f"{first.run} waits no more, and stays lost\n"
    assert runs.read(first.folder).outcome == "lost"


def test_of_a_name_that_may_be_several_runs_each_is_named(site: Site) -> None:
    names = [written(site, f"{NAME}{end}").run for end in ("", "-2", "-10")]
    assert runs.names(site) == names
    assert runs.chosen(site, None).run == names[-1]
    assert runs.chosen(site, "y-2").run == names[1]
    with pytest.raises(TrainError, match=r"may be 3 runs \(.*-10, .*-2, "):
        runs.chosen(site, "2026")
    with pytest.raises(TrainError, match="there is no run x"):
        runs.chosen(site, "x")


def test_one_that_was_begun_again_is_unresolved_no_more(site: Site) -> None:
    failed = written(site)
    assert runs.unresolved([failed]) == {failed.run}
    trial = written(site, f"{NAME}-2", outcome="finished", trial=True, created=host.now(9))
    again = written(site, f"{NAME}-3", outcome="finished", created=host.now(9))
    assert runs.unresolved([failed, trial]) == {failed.run}
    assert runs.unresolved([failed, trial, again]) == set()


SAVES = {"file": "t.py", "checkpoints": "{run}/out/step-*", "complete": ["done", "rank{rank}.pt"]}


def test_old_runs_go_and_their_checkpoints_stay(site: Site, checkout: Path) -> None:
    written(site, f"{NAME}-1", spec=SAVES)
    put(site.runs / f"{NAME}-1/out/step-5/done")
    written(site, f"{NAME}-2", spec=SAVES)
    written(site, f"{NAME}-3", spec=SAVES)
    runs.forget_old(Site(**{**vars(site), "keep_runs": 1}))
    assert runs.names(site) == [f"{NAME}-1", f"{NAME}-3"]
    left = sorted(path.name for path in (site.runs / f"{NAME}-1").iterdir())
    assert left == ["out", "run.json"]


def test_the_newest_complete_checkpoint_is_taken_by_its_number(tmp_path: Path) -> None:
    preset = presets.from_json("a", SAVES)
    for step in ("step-9", "step-40", "step-100"):
        for name in ("done", "rank0.pt", "rank1.pt"):
            put(tmp_path / "out" / step / name)

    def newest(ranks: int = 2, since: float = 0) -> str | None:
        found = presets.newest(preset, {"run": tmp_path}, ranks, since)
        return found.step if found else None

    assert newest() == "100"
    (tmp_path / "out/step-100/done").unlink()
    assert newest() == "40"
    put(tmp_path / "out/step-40/rank1.pt", "")
    assert newest() == "9"
    assert newest(1) is newest(3) is newest(2, time.time() + 60) is None


# -- what is asked of the host


def smi(text: str) -> Any:
    return lambda command: Answer(0, text)


def test_gpus_and_their_users_are_read_from_nvidia_smi() -> None:
    rows = "1, GPU-b, 32607, 500, [N/A], 71, 561.1, 0x4\n0, GPU-a, 32607, 0, 9, 40, 20, 0x0\n"
    first, second = host.gpus(smi(rows))
    assert (first.index, second.uuid, second.used_mib) == (0, "GPU-b", 500)
    assert (second.percent, second.slowed, first.slowed) == (None, "power limit", "")
    users = host.gpu_users(smi("GPU-a, 712, /usr/bin/python\n"))
    assert users == {"GPU-a": ["pid 712 (python)"]}
    with pytest.raises(TrainError, match="GPU is lost"):
        host.gpus(smi("0, GPU-a, [GPU is lost], 0, 0, 0, 0, 0x0\n"))


def test_gpus_that_there_are_not_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "0, GPU-a, 1, 0, 0, 0, 0, 0x0\n1, GPU-b, 1, 0, 0, 0, 0, 0x0\n"
    known = host.gpus(smi(rows))
    monkeypatch.setattr(host, "gpus", lambda: known)
    preset = presets.from_json("a", {"file": "a.py"})
    assert checks.devices(site, preset, "GPU-b,0") == (["GPU-b", "GPU-a"], 2)
    for given, words in (("2", "names no GPU by '2'"), ("0,0", "twice"), (",", "names no GPU")):
        with pytest.raises(TrainError, match=words):
            checks.devices(site, preset, given)
    large = presets.from_json("a", {"file": "a.py", "ranks": 3})
    with pytest.raises(TrainError, match="this host has 2: give --set ranks=2"):
        checks.devices(site, large, None)


def test_gpus_that_are_taken_in_use_or_too_small_are_in_the_way(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = f"0, {GPUS[0]}, 2048, 0, 0, 0, 0, 0x0\n1, {GPUS[1]}, 2048, 1024, 0, 0, 0, 0x0\n"
    known, users = host.gpus(smi(rows)), host.gpu_users(smi(f"{GPUS[1]}, 712, /usr/bin/python\n"))
    monkeypatch.setattr(host, "gpus", lambda: known)
    monkeypatch.setattr(host, "gpu_users", lambda: users)
    run = written(site, devices=GPUS, ranks=2, spec={"file": "a.py", "gpu_gib": 1.5})
    held = claims.claim(site, "other", GPUS[:1], 1, None)
    assert isinstance(held, claims.Held)
    with pytest.raises(TrainError) as caught:
        checks.refuse(site, run)
    held.release()
    said = str(caught.value)
    assert "1 of 2 GPUs are taken by other\n    give --queue to wait, or end what has it" in said
    assert "GPU 1 is in use by pid 712 (python)\n    end it" in said
    assert "GPU 1 has 1.0 GiB free of 2.0, and preset tiny needs 1.5" in said
    assert "GPU 0 has" not in said


def test_several_hosts_share_no_folder_of_one_runs_own(site: Site) -> None:
    spec = {"file": "a.py", "arguments": {"out": "{run}/x"}}
    run = written(site, spec=spec, part={"hosts": ["a", "b"]}, queue=True)
    with pytest.raises(TrainError) as caught:
        checks.refuse(site, run)
    assert "give --set out=FOLDER" in str(caught.value)
    assert "leave out --queue" in str(caught.value)
    total = {"arguments": {"total": 6}, "multiples": {"total": ["ranks"]}}
    spec = {"file": "a.py", **total}
    run = written(site, f"{NAME}-2", spec=spec, part={"hosts": ["a", "b"]}, ranks=2)
    with pytest.raises(TrainError, match="no multiple of ranks 4 = 4"):
        checks.refuse(site, run)


def test_hosts_meet_where_the_first_one_is() -> None:
    part = {"hosts": ["a", "b"], "host": "b", "address": "127.0.0.1", "port": 4123}
    for host_, leads in (("a", "true"), ("b", "false")):
        words, found = supervise.together({**part, "host": host_}, NAME)
        assert words[words.index("--rdzv-endpoint") + 1] == "127.0.0.1:4123"
        assert words[words.index("--local-addr") + 1] == "127.0.0.1"
        assert f"is_host={leads},join_timeout=60,read_timeout=60" in words
        assert found["GLOO_SOCKET_IFNAME"] == "lo"


# -- why

FAILURES = Path(__file__).parent / "failures"
CAUSES = {
    "disk": "disk-full",
    "hang": "run-no-progress",
    "killed_rank": "rank-killed",
    "memory": "cuda-out-of-memory",
    "nan": "loss-not-finite",
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_failure_is_explained_by_what_the_log_and_the_launcher_know(
    name: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyinfra_gpu.on_host.diagnosis import causes

    catalogue = causes.unpacked(for_hosts())
    monkeypatch.setattr(causes, "carried", lambda: catalogue)
    monkeypatch.setenv("PYINFRA_GPU_HOST_FACTS", '{"disk-full": "/var has 3 MiB free"}')
    spec = {"file": "train.py", "arguments": {"device-batch-size": 16, "total-batch-size": 512}}
    run = written(
        site,
        log=(FAILURES / f"{name}.log").read_text(),
        spec=spec,
        attempt={"exit": -9 if name == "killed_rank" else 1},
    )
    nan = [{"time": host.now(), "attempt": 1, "step": 9, "loss": None, "not_finite": "nan"}]
    hang = [{"time": host.now(n - 900), "attempt": 1, "step": n} for n in range(9)]
    lines = {"nan": nan, "hang": hang}.get(name, [])
    put(run.folder / "metrics.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    found = why.explain(site, run)
    text = " ".join(found.text(80).split())
    assert (found.id, "What to do" in text) == (CAUSES[name], True), text
    assert ("/var has 3 MiB free" in text) is (name == "disk")
    halved = f"train start --like {NAME} --set device-batch-size=8"
    assert (halved in text) is (name == "memory")
    assert json.loads(json.dumps(found.as_json()))["text"] == found.text(80)


def test_a_lost_run_says_what_ended_it_and_how_to_go_on(site: Site) -> None:
    spec = {**SAVES, "complete": [], "resume": {"resume": "{checkpoint}"}}
    run = written(site, state="running", outcome=None, spec=spec)
    put(run.folder / "out/step-40/x")
    text = " ".join(why.explain(site, run).text(80).split())
    assert "was lost before its first step: its supervisor was ended" in text
    assert f"`train resume {NAME}` continues from step-40" in text
    moved = written(site, f"{NAME}-2", outcome="lost", attempt={"boot_id": "another"})
    assert "the host was started anew" in why.explain(site, moved).what


def test_what_nobody_knows_shows_the_end_of_the_log(site: Site) -> None:
    text = why.explain(site, written(site, log="one\nnobody knows this\n")).text(80)
    assert "No cause found" in text
    assert text.endswith("It ends with\n  one\n  nobody knows this")
    finished = written(site, f"{NAME}-2", outcome="finished", attempt={"exit": 0})
    assert "finished" in why.explain(site, finished).what
    assert "nothing has failed" in why.explain(site, finished).what
    line = {"time": host.now(), "attempt": 1, "step": 1, "loss": None, "not_finite": "nan"}
    put(finished.folder / "metrics.jsonl", f"{json.dumps(line)}\n")
    assert why.explain(site, runs.read(finished.folder)).what.endswith(
        ": its loss is NaN since step 1"
    )


# -- watch and list


def test_a_run_is_one_line_or_a_screen(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    run = written(site, log="step 10/20  loss 2.5\n", overrides={"lr": "1"})
    lines = [
        {"time": host.now(n - 9), "attempt": 1, "step": n, "steps": 20, "loss": 3 - n / 10}
        for n in range(9)
    ]
    put(run.folder / "metrics.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    assert listing.watch(run.folder, plain=True, once=True) == 2
    assert "| failed | step 8/20 (40.0%) | loss 2.2000" in capsys.readouterr().out
    for width in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        console.print(listing.screen(runs.read(run.folder)))
        text = console.export_text()
        assert max(map(len, text.splitlines())) <= width
        for word in (NAME, "failed", "lr=1", "step  8/20 (40.0%)", "loss  2.2000", "train why"):
            assert word in text


def test_the_command_line_loads_nothing_for_screens() -> None:
    """`list`, `logs` and `start` imported rich, which took a third of their time."""
    program = (
        "import sys; from pyinfra_gpu.on_host.train import cli, starting;"
        " sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# What is typed -> the exit code, and what is said, in one sentence; nothing is written.
MISTAKES = {
    ("strt",): (2, "Did you mean 'start'"),
    ("start", "--nope"): (2, "No such option '--nope'"),
    ("stop", "--", "x"): (2, "nothing goes behind --"),
    ("start", "a", "--like", "b"): (2, "--like b has a preset of its own"),
    ("start", "tinyy"): (1, "there is no preset tinyy: did you mean tiny?"),
    ("start",): (1, "say which preset: tiny, big"),
    ("start", "tiny", "--set", "stps=1"): (1, "has no argument 'stps': did you mean steps?"),
    ("start", "tiny", "--gpus", "0"): (1, "this host has no GPUs, by its data: leave out --gpus"),
    ("logs",): (1, "there is no run yet"),
    ("stop",): (1, "no run is running: see `train list`"),
    ("stop", "--across"): (1, "no run of several hosts is running: see `train list`"),
    ("resume", "nothing"): (1, "there is no run nothing: see `train list`"),
    ("start", "--like", "nothing"): (1, "there is no run nothing"),
}


@pytest.fixture
def here(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The host on which the command line is called."""
    known = {"tiny": {"file": "t.py", "arguments": {"steps": 3}}, "big": {"file": "t.py"}}
    own = Site(**{**vars(site), "presets": known, "accelerator": "cpu"})
    monkeypatch.setattr(host, "load", lambda: own)
    return own


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...], here: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = MISTAKES[words]
    assert cli.main(words) == code
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert [*here.runs.iterdir()] == []


def test_a_shell_completes_commands_presets_arguments_and_runs(
    here: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offered(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", f"train {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" "))))
        with pytest.raises(SystemExit):
            cli.main([])
        return [row.partition(",")[2] for row in capsys.readouterr().out.splitlines()]

    monkeypatch.setenv("_TRAIN_COMPLETE", "bash_complete")
    never = written(here, f"{NAME}-1", attempts=[]).run
    begins = written(here, f"{NAME}-2", state="starting", attempts=[]).run
    finished = written(here, f"{NAME}-3", outcome="finished").run
    failed = written(here, f"{NAME}-4").run
    assert {"start", "stop", "why", "completion"} <= {*offered("")}
    assert not {"supervise", "again"} & {*offered("")}
    assert {"tiny", "big"} == {*offered("start ")}
    assert offered("start tiny --set st") == ["steps="]
    assert offered("stop 2026") == [begins]
    assert offered("resume 2026") == [failed, never]
    assert offered("logs 2026") == [failed, finished]
    assert offered("why 2026") == [failed, finished, begins, never]
