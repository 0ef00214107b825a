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
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis.catalogue import for_hosts
from pyinfra_gpu.on_host.smoke.nvidia_smi import Answer
from pyinfra_gpu.on_host.train import (
    claims,
    cli,
    code,
    host,
    presets,
    runs,
    starting,
    supervise,
    units,
    views,
)
from pyinfra_gpu.on_host.train.host import CPU, Site, TrainError
from pyinfra_gpu.on_host.train.metrics import Metrics, history
from pyinfra_gpu.on_host.train.runs import Run

GPUS = [f"GPU-{os.getpid():07}-{name}" for name in "ab"]  # names are the whole machine's
NAME = "20261122-200000-tiny"
SAVES = {"file": "t.py", "checkpoints": "{run}/out/step-*", "complete": ["done", "rank{rank}.pt"]}


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The runs whose units are on."""
    names: set[str] = set()
    monkeypatch.setattr(units, "on", lambda: {*names})
    monkeypatch.setattr(units, "stop", lambda run, seconds: names.discard(run))
    return names


@pytest.fixture
def site(tmp_path: Path, on: set[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    state = tmp_path / "state"
    (state / "runs").mkdir(parents=True)
    known = {"tiny": {"file": "t.py", "arguments": {"steps": 3}}, "big": {"file": "t.py"}}
    made = Site(
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
        presets=known,
    )
    monkeypatch.setattr(host, "load", lambda: made)
    return made


def changed(site: Site, **fields: Any) -> Site:
    return Site(**{**vars(site), **fields})


def written(site: Site, name: str = NAME, log: str = "", **fields: Any) -> Run:
    """Write a run down, ended unless it is said otherwise, and read it."""
    folder = site.runs / name
    (folder / "attempts/1").mkdir(parents=True)
    outcome = fields.pop("outcome", "failed")
    attempt = {"number": 1, "started": host.now(-60), "ended": host.now(), "outcome": outcome}
    attempt |= {"exit": 1, **fields.pop("attempt", {})}
    document = {
        "schema": 1, "boot_id": host.boot_id(), "state": "ended", "preset": "tiny", "gpus": GPUS,
        "created": host.now(-60), "attempts": [attempt], "spec": {"file": "train.py"}, **fields,
    }  # fmt: skip
    put(folder / "run.json", json.dumps(document))
    stamped = "".join(f"{host.now()} {line}\n" for line in log.splitlines())
    put(folder / "attempts/1/rank0.log", stamped)
    return runs.read(folder)


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def reported(run: Run, *lines: dict[str, Any]) -> Run:
    """Write metrics of a run down, and read it again."""
    whole = ({"time": host.now(), "attempt": 1, **line} for line in lines)
    put(run.folder / "metrics.jsonl", "".join(f"{json.dumps(line)}\n" for line in whole))
    return runs.read(run.folder)


NAN = {"step": 1, "loss": None, "not_finite": "nan"}
NEWER = {"UTC", "StrEnum", "tomllib", "ExceptionGroup", "TaskGroup", "batched", "override", "Self"}


def test_the_launcher_has_nothing_of_a_newer_python() -> None:
    """`datetime.UTC` made every command on Ubuntu 22.04, which has 3.10, a traceback."""
    for path, text in on_host._sources("train", "diagnosis", "fingerprint.py", "smoke").items():
        if path.endswith(".py"):
            tree = [*ast.walk(ast.parse(text, feature_version=(3, 10)))]
            used = {node.attr for node in tree if isinstance(node, ast.Attribute)}
            used |= {node.id for node in tree if isinstance(node, ast.Name)}
            used |= {node.name for node in tree if isinstance(node, ast.alias)}
            assert not used & NEWER, path
            assert not any(isinstance(node, ast.TryStar) for node in tree)
    assert host.moment("2026-11-22T20:00:00.123Z") == 1795377600.123
    assert host.moment("no time") is None


# -- the code of a run


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always")
    run = ["git", *who, "-C", str(folder), *words]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, *names: str) -> Path:
    for name in names:
        put(folder / name, "one\n")
    put(folder / ".gitignore", "data/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def test_the_code_of_a_run_is_the_commit_and_what_was_changed_in_it(
    site: Site, tmp_path: Path
) -> None:
    """Of a worktree that was half made a run went on without the uncommitted changes."""
    checkout, there = repository(Path(site.checkout), "train.py"), tmp_path / "code"
    inner = repository(tmp_path / "inner", "lib.py")
    git(checkout, "submodule", "add", "-q", str(inner), "lib x")
    git(checkout, "commit", "-qm", "two")
    names = ("train.py", "new.py", "lib x/lib.py")
    for name in (*names, "data/large.bin"):
        put(checkout / name, "two\n")
    before = git(checkout, "status", "--porcelain")
    kept = code.snapshot(checkout)
    assert git(checkout, "status", "--porcelain") == before
    put(checkout / "train.py", "three\n")
    git(checkout, "worktree", "add", "-q", "--detach", str(there), "HEAD")
    for _ in range(2):
        code.lay_out(checkout, there, NAME, kept)
    assert [(there / name).read_text() for name in names] == ["two\n"] * 3
    assert not (there / "data").exists()
    assert git(there, "rev-parse", "HEAD") == kept[0][1] == code.head(checkout)
    assert git(checkout, "for-each-ref", "refs/train").startswith(kept[0][2])  # gc leaves it
    code.forget(checkout, NAME, kept)
    assert git(checkout, "for-each-ref", "refs/train") == ""


# -- logs and metrics


def test_logs_that_are_followed_lose_no_line_at_a_rotation(
    site: Site, on: set[str], monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    """After a rotation the rest of the old file was never read: 142 of 201 lines were shown."""
    on.add(NAME)
    run = written(site, state="running", outcome=None)
    log, numbers = supervise.log_to(run.attempt() / "rank0.log", 2000 / (1 << 20)), iter(range(200))

    def write(seconds: float) -> None:
        for number in islice(numbers, 20):  # 700 bytes between two looks
            log(f"line {number:03}")
        on.discard(NAME if "line 199" in (run.attempt() / "rank0.log").read_text() else "")

    monkeypatch.setattr(cli.time, "sleep", write)
    with os.fdopen(os.dup(1), "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        cli._printed(run, None, "rank0.log", True)
    lines = capfdbinary.readouterr().out.split(b"\n")
    assert [int(line[-3:]) for line in lines if b"line" in line] == [*range(200)]


def test_metrics_never_end_and_a_long_run_is_not_called_stalled(tmp_path: Path) -> None:
    """After 64 MiB nothing was written any more, and the run was called stalled until its end."""
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, 1, largest=10_000)
    for step in range(1, 1001):
        metrics.read(f"step {step}/1000  loss {4 / step:.4f}")
        assert path.stat().st_size < 10_200
    for seen in (history(path, 1), metrics.history):
        assert seen.last["step"] == 1000
        assert seen.stalled(time.time()) is None
        assert seen.stalled(time.time() + 301) is not None
    assert history(path, 1).losses[0] < 4


def test_a_history_is_of_the_last_attempt_and_its_curve_of_all(site: Site) -> None:
    run = reported(
        written(site),
        {"step": 5, "loss": None, "not_finite": "nan"},
        {"step": 6, "loss": 2.0},
        {"attempt": 2, "step": 1, "loss": 1.0},
        {"attempt": 2, "step": 2, "loss": None, "not_finite": "inf"},
        {"attempt": 2, "step": 3, "loss": None, "not_finite": "nan"},
    )
    path = run.folder / "metrics.jsonl"
    path.write_text(path.read_text() + "torn {")
    seen = history(path, 2)
    assert (seen.last["step"], seen.losses, seen.not_finite) == (3, [2.0, 1.0], (2, "inf"))
    assert history(path, 1).not_finite is None


# -- who has what


def test_devices_are_claimed_all_or_none_and_a_gpu_is_one_for_all_prefixes_of_a_host(
    site: Site, tmp_path: Path
) -> None:
    """Two owners, each with a prefix, trained on the same two GPUs at once."""
    other = changed(site, state=str(tmp_path))
    first = claims.claim(site, "one", [GPUS[0], CPU], 2, claims.Held())
    assert isinstance(first, claims.Held)
    assert claims.claim(other, "two", GPUS, 2, claims.Held()) == ["one"]
    assert claims.holders(site, GPUS) == {GPUS[0]: "one"}
    assert isinstance(claims.claim(other, "two", [CPU], 1, claims.Held()), claims.Held)
    first.release()
    assert claims.holders(site, GPUS) == {}


def test_who_waits_comes_first_and_in_order(site: Site) -> None:
    held = claims.claim(site, "zero", GPUS, 2, claims.Held())
    assert isinstance(held, claims.Held)
    one, two = claims.wait(site, "one", GPUS), claims.wait(site, "two", GPUS)
    held.release()
    assert claims.claim(site, "two", GPUS, 1, two) == ["one"]
    assert claims.claim(site, "jumper", GPUS, 1, claims.Held()) == ["one", "two"]
    got = claims.claim(site, "one", GPUS, 1, one)
    assert isinstance(got, claims.Held)
    one.release()
    assert isinstance(claims.claim(site, "two", GPUS, 1, two), claims.Held)
    two.release()


def _race(site: Site, number: int, results: Any, over: Any) -> None:
    got = claims.claim(site, f"run{number}", GPUS, 1, claims.Held())
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
    site: Site, on: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking removed tickets, and `why` of a queued run ended with EROFS."""
    on.add(NAME)
    held = claims.claim(site, "one", GPUS, 2, claims.Held())
    queued = written(site, state="queued", outcome=None, devices=GPUS, ranks=1)
    opened = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "read-only", str(path))
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    found = views.explain(site, runs.read(queued.folder))
    assert found.facts == ["it waits for 1 of 2 GPUs, taken by one"]
    assert isinstance(held, claims.Held)


# -- run.json, whole or not


def test_a_run_that_no_unit_runs_is_lost_and_looking_does_not_write_it(
    site: Site, on: set[str]
) -> None:
    run = written(site, state="running", outcome=None, words=["--lr"], part={"hosts": ["a", "b"]})
    assert (run.outcome, run.over) == ("lost", True)
    assert json.loads((run.folder / "run.json").read_text())["state"] == "running"
    on.add(NAME)
    run = runs.read(run.folder)
    assert run.state == "running"
    run.save()
    assert runs.read(run.folder) == run
    assert written(site, f"{NAME}-2", state="starting", attempts=[]).outcome == "not started"


DAMAGED = {
    "no JSON": '{"state": ',
    "another version": '{"schema": 2, "state": "running", "attempts": []}',
    "no object": "3",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_foreign_record_keeps_nobody_from_stopping_or_listing(
    what: str, site: Site, on: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Orders that were damaged, or a run of another version, made `stop` refuse."""
    on |= {NAME, f"{NAME}-2"}
    good, bad = written(site, state="running", outcome=None), written(site, f"{NAME}-2")
    put(bad.folder / "run.json", DAMAGED[what])
    assert cli.main(["list", "--json"]) == 0
    states = [each["state"] for each in json.loads(capsys.readouterr().out)["runs"]]
    assert states == ["running", "running"]
    assert cli.main(["stop"]) == 1
    assert "may be 2 runs" in capsys.readouterr().err
    assert cli.main(["stop", bad.run]) == 0
    assert on == {good.run}
    assert cli.main(["stop"]) == 0
    last = json.loads((good.folder / "run.json").read_text())["attempts"][0]
    assert last["outcome"] == "stopped"
    assert "on this host" in last["stopped_by"]
    assert cli.main(["why", bad.run]) == 0
    assert f"the record of run {bad.run} is damaged" in " ".join(capsys.readouterr().out.split())


def test_runs_that_a_reboot_cut_off_go_on_each_for_itself_where_the_host_is_proven(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An OSError of the first ended `train again`, and all waited for a day for nobody."""
    cut_off: dict[str, Any] = {"outcome": "lost", "boot_id": "another"}
    waits = {"after_reboot": True, "unproven": True, **cut_off}
    first, second = (written(site, f"{NAME}{end}", **waits) for end in ("", "-2"))
    unproven = written(site, f"{NAME}-3", **{**waits, "unproven": False})
    assert (unproven.outcome, unproven.goes_on) == ("lost", True)
    facts = " ".join(views.explain(site, unproven).facts)
    assert "no smoke test has passed here: run `pyinfra INVENTORY tasks/smoke.py`" in facts
    over = [
        {"after_reboot": False}, {"outcome": "failed"},
        {"boot_id": host.boot_id()},
    ]  # fmt: skip
    for number, each in enumerate(over):
        assert not written(site, f"{NAME}-{number + 4}", **{**waits, **each}).goes_on
    tried: list[str] = []

    def launch(site: Site, run: Run, point: object) -> None:
        tried.append(run.run)
        assert (point, run.queue, run.state) == (None, True, "starting")
        if run.run == first.run:
            raise OSError(errno.ENOSPC, "No space left on device")
        run.state, run.after_reboot = "ended", False
        run.save()

    monkeypatch.setattr(starting, "refuse", lambda *_: None)
    monkeypatch.setattr(starting, "devices", lambda *_: (GPUS, 2))
    looks = iter([None])
    monkeypatch.setattr(starting, "_launch", launch)
    monkeypatch.setattr(starting.time, "sleep", lambda seconds: next(looks))
    with pytest.raises(StopIteration):
        starting.again(site)
    assert tried == [first.run, second.run, first.run]
    assert f"{first.run}: [Errno 28] No space left" in capsys.readouterr().err
    assert starting.stop(site, first.run) == 0
    assert capsys.readouterr().out == f"{first.run} lost, and waits no more\n"
    assert not runs.read(first.folder).goes_on


def test_a_start_ends_when_the_run_is_on_and_of_a_refused_one_nothing_is_left(
    site: Site, on: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(Path(site.checkout), "t.py")
    monkeypatch.setattr(host, "load", lambda: changed(site, accelerator="cpu"))
    monkeypatch.setattr(starting, "refuse", lambda *_: None)
    monkeypatch.setattr(units, "ensure", lambda *_: None)
    refused: dict[str, str] = {}

    def begin(name: str) -> None:
        run = runs.record(site.runs / name)
        vars(run).update(state="running", **refused)
        run.save()
        on.add(name)
        if refused:
            raise TrainError("`systemctl --user start` failed")

    monkeypatch.setattr(units, "start", begin)
    assert cli.main(["start", "tiny"]) == 0
    (name,) = runs.names(site)
    assert f"{name} started, 2 ranks" in capsys.readouterr().out
    refused["refused"] = "git failed"
    assert cli.main(["start", "big"]) == 1
    assert capsys.readouterr().err.endswith("\ngit failed\n")
    assert [path.name for path in site.runs.iterdir()] == [name]


def test_of_a_name_that_may_be_several_runs_each_is_named(site: Site) -> None:
    names = [written(site, f"{NAME}{end}").run for end in ("", "-2", "-3")]
    assert [runs.chosen(site, name).run for name in (None, "y-2")] == [names[2], names[1]]
    with pytest.raises(TrainError, match=r"may be 3 runs \(.*-3, .*-2, "):
        runs.chosen(site, "2026")


def test_one_that_was_begun_again_is_unresolved_no_more(site: Site) -> None:
    failed = written(site)
    early = written(site, f"{NAME}-1", outcome="finished", created=host.now(-30))
    trial = written(site, f"{NAME}-2", outcome="finished", trial=True, created=host.now(9))
    again = written(site, f"{NAME}-3", outcome="finished", created=host.now(9))
    assert runs.unresolved([failed, early, trial]) == {failed.run}
    assert runs.unresolved([failed, trial, again]) == set()


def test_old_runs_go_and_their_checkpoints_stay(site: Site) -> None:
    repository(Path(site.checkout), "train.py")
    for number in (1, 2, 3):
        written(site, f"{NAME}-{number}", spec=SAVES)
    put(site.runs / f"{NAME}-1/out/step-5/done")
    runs.forget_old(changed(site, keep_runs=1))
    assert runs.names(site) == [f"{NAME}-1", f"{NAME}-3"]
    left = sorted(path.name for path in (site.runs / f"{NAME}-1").iterdir())
    assert left == ["out", "run.json"]


def test_the_newest_complete_checkpoint_is_taken_by_its_number(site: Site) -> None:
    run = written(site, spec=SAVES)
    for step in ("step-9", "step-40", "step-100"):
        for name in ("done", "rank0.pt", "rank1.pt"):
            put(run.folder / "out" / step / name)

    def newest(ranks: int = 2, later: float = -60) -> str | None:
        found = replace(run, ranks=ranks, created=host.now(later)).newest()
        return runs.step_of(found) if found else None

    assert newest() == "100"
    (run.folder / "out/step-100/done").unlink()
    assert newest() == "40"
    put(run.folder / "out/step-40/rank1.pt", "")
    assert newest() == "9"
    assert newest(1) is newest(3) is newest(2, 60) is None


# -- what is asked of the host


def smi(text: str) -> Any:
    return lambda command: Answer(0, text)


def test_gpus_and_their_users_are_read_from_nvidia_smi() -> None:
    rows = "1, GPU-b, 32607, 500, [N/A], 71, 561.1, 0x4\n0, GPU-a, 32607, 0, 9, 40, 20, 0x0\n"
    first, second = host.gpus(smi(rows))
    assert (first.index, second.uuid, second.used_mib) == (0, "GPU-b", 500)
    assert second.words == "GPU 1 0.5/31.8 GiB 71 °C 561 W sw power cap"
    users = host.gpu_users(smi("GPU-a, 712, /usr/bin/python\n"))
    assert users == {"GPU-a": ["pid 712 (python)"]}
    updated = Answer(18, "Failed to initialize NVML: Driver/library version mismatch")
    with pytest.raises(TrainError, match=r"^the driver was updated.*NVML.*run `pyinfra INVENTORY"):
        host.gpus(lambda _: updated)
    with pytest.raises(TrainError, match="GPU is lost"):
        host.gpus(smi("0, GPU-a, [GPU is lost], 0, 0, 0, 0, 0x0\n"))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, the second of which somebody uses."""
    rows = f"0, {GPUS[0]}, 2048, 0, 0, 0, 0, 0x0\n1, {GPUS[1]}, 2048, 1024, 0, 0, 0, 0x0\n"
    known, users = host.gpus(smi(rows)), host.gpu_users(smi(f"{GPUS[1]}, 712, /usr/bin/python\n"))
    monkeypatch.setattr(host, "gpus", lambda: known)
    monkeypatch.setattr(host, "gpu_users", lambda: users)


@pytest.mark.usefixtures("two")
def test_gpus_that_there_are_not_are_refused(site: Site) -> None:
    preset = presets.from_json("a", {"file": "a.py"})
    assert starting.devices(site, preset, f"{GPUS[1]},0") == ([GPUS[1], GPUS[0]], 2)
    for given in ("2", "0,0", ","):
        with pytest.raises(TrainError, match="give GPUs of this host, each once, of 0, 1"):
            starting.devices(site, preset, given)
    large = presets.from_json("a", {"file": "a.py", "ranks": 3})
    with pytest.raises(TrainError, match="there are 2: give --set ranks=2"):
        starting.devices(site, large, None)


A, BOTH = {"file": "a.py"}, {"hosts": ["a", "b"]}
# A run's record -> what is in its way, and what is not.
IN_THE_WAY: list[tuple[dict[str, Any], list[str]]] = [
    ({"spec": {**A, "gpu_gib": 1.5}, "ranks": 2}, [
        "1 of 2 GPUs are taken by other\n    give --queue to wait, or end what has it",
        "GPU 1 is in use by pid 712 (python)\n    end it",
        "GPU 1 has 1.0 GiB free of 2.0, and preset tiny needs 1.5",
    ]),
    ({"spec": {**A, "arguments": {"out": "{run}/x"}}, "part": BOTH, "queue": True},
     ["give --set out=FOLDER", "leave out --queue"]),
    ({"spec": {**A, "checkpoints": "~/out/step-*"}}, ["only a shell replaces the ~"]),
    ({"spec": {**A, "checkpoints": "/dev/shm/x/step-*", "checkpoint_gib": 1 << 19}},
     ["GiB are free below /dev/shm, and two checkpoints need"]),
    ({"spec": {**A, "checkpoints": "/srv/out/step-*"}}, ["may not write in /srv"]),
]  # fmt: skip


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("fields", "words"), IN_THE_WAY)
def test_what_is_in_the_way_is_said_with_its_remedy(
    fields: dict[str, Any], words: list[str], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, how: str(path) != "/srv")
    put(Path(site.env_file), "")
    run = written(site, devices=GPUS, **fields)
    held = claims.claim(site, "other", GPUS[:1], 1, claims.Held())
    assert isinstance(held, claims.Held)
    with pytest.raises(TrainError) as caught:
        starting.refuse(site, run)
    held.release()
    for each in words:
        assert each in str(caught.value)
    assert "GPU 0 has" not in str(caught.value)
    assert ("may not write" in str(caught.value)) is ("may not write" in words[0])


def test_hosts_meet_where_the_first_one_is() -> None:
    part = {**BOTH, "address": "127.0.0.1", "port": 41235}
    for name, leads in (("a", "true"), ("b", "false")):
        words, found = supervise.rendezvous({**part, "host": name}, NAME)
        assert words[words.index("--rdzv-endpoint") + 1] == "127.0.0.1:41235"
        assert words[words.index("--local-addr") + 1] == "127.0.0.1"
        assert f"is_host={leads},join_timeout=60,read_timeout=60" in words
        assert found["GLOO_SOCKET_IFNAME"] == "lo"


# -- why

FAILURES = Path(__file__).parent / "failures"
HANG = [{"time": host.now(n - 900), "step": n} for n in range(9)]
# The log -> (the cause, the exit code, the metrics).
CAUSES: dict[str, tuple[str, int, list[dict[str, Any]]]] = {
    "disk": ("disk-full", 1, []),
    "hang": ("run-no-progress", 1, HANG),
    "killed_rank": ("rank-killed", -9, []),
    "memory": ("cuda-out-of-memory", 1, []),
    "nan": ("loss-not-finite", 1, [NAN]),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_failure_is_explained_by_what_the_log_and_the_launcher_know(
    name: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyinfra_gpu.on_host.diagnosis import causes

    cause, exit_code, lines = CAUSES[name]
    catalogue = causes.unpacked(for_hosts())
    monkeypatch.setattr(causes, "carried", lambda: catalogue)
    monkeypatch.setenv("PYINFRA_GPU_HOST_FACTS", '{"disk-full": "/var has 3 MiB free"}')
    log = (FAILURES / f"{name}.log").read_text()
    found = views.explain(
        site, reported(written(site, log=log, attempt={"exit": exit_code}), *lines)
    )
    text = " ".join(found.text(80).split())
    assert (found.id, "What to do" in text) == (cause, True), text
    assert ("/var has 3 MiB free" in text) is (name == "disk")


def test_what_became_of_a_run_is_one_sentence_and_how_to_go_on(site: Site, on: set[str]) -> None:
    spec = {**SAVES, "complete": [], "resume": {"resume": "{checkpoint}"}}
    lost = written(site, state="running", outcome=None, spec=spec)
    put(lost.folder / "out/step-40/x")
    text = " ".join(views.explain(site, lost).text(80).split())
    assert "lost: its supervisor was ended, after 0:01:00" in text
    assert f"`train resume {NAME}` continues from step-40" in text
    on.add(f"{NAME}-5")
    for number, fields, lines, words in (
        (2, {"outcome": "lost", "boot_id": "another"}, [], "lost: the host was restarted"),
        (3, {"outcome": "finished"}, [NAN], "loss nan since step 1"),
        (4, {"attempts": [], "refused": "git failed"}, [], "not started: git failed"),
        (5, {"state": "running", "outcome": None}, HANG, "stalled: no step for 0:1"),
    ):
        run = reported(written(site, f"{NAME}-{number}", **fields), *lines)
        assert words in views.explain(site, run).text(80)
    text = views.explain(site, written(site, f"{NAME}-6", log="one\nnobody knows this\n")).text(80)
    assert "No cause found" in text
    assert text.endswith("It ends with\n  one\n  nobody knows this")


# -- watch and list


def test_a_run_is_one_line_or_a_screen(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = written(site, log="step 10/20  loss 2.5\n", overrides={"lr": "1"})
    steps = ({"step": n, "steps": 20, "loss": 3 - n / 10} for n in range(9))
    run = reported(run, *({"time": host.now(each["step"] - 9), **each} for each in steps))
    assert cli.main(["watch", "--once"]) == 2
    assert "| failed, after 0:01:00 | step 8/20 (40.0%) | loss 2.2" in capsys.readouterr().out
    for width in (60, 120):
        text = views.screen(run, width)
        assert max(map(len, text.splitlines())) <= width
        for word in (NAME, "failed", "lr=1", "step   8/20 (40.0%)", "loss   2.2", "train why"):
            assert word in text
    looks = iter([{f"{NAME}-2"}] * 3)
    monkeypatch.setattr(units, "on", lambda: next(looks, set()))
    monkeypatch.setattr(views, "draws", lambda stream: True)
    monkeypatch.setattr(views.time, "sleep", lambda seconds: None)
    written(site, f"{NAME}-2", state="running", outcome=None)
    assert cli.main(["watch"]) == 2
    first, second = capsys.readouterr().out.split("\x1b[H\x1b[J")
    assert f"{NAME}-2  running" in first
    assert f"{NAME}-2  lost: its supervisor was ended" in second


# Fields and metrics of a run that is on -> its word, and whether somebody should look.
LOOKS: list[tuple[dict[str, Any], list[dict[str, Any]], str, bool]] = [
    ({"state": "running", "outcome": None}, [], "running", False),
    ({"state": "running", "outcome": None}, [NAN], "running", True),
    ({"state": "running", "outcome": None}, HANG, "stalled", True),
    ({"outcome": "finished"}, [], "finished", False),
    ({"outcome": "finished"}, HANG, "finished", False),
    ({"outcome": "stopped"}, [NAN], "stopped", False),
    ({"outcome": "failed"}, [], "failed", True),
    ({"state": "queued", "attempts": []}, [], "queued", False),
]


@pytest.mark.parametrize(("fields", "lines", "outcome", "wrong"), LOOKS)
def test_list_says_what_a_run_does_and_whether_somebody_should_look(
    fields: dict[str, Any], lines: list[dict[str, Any]], outcome: str, wrong: bool,
    site: Site, on: set[str], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    on.add(NAME)
    reported(written(site, **fields), *lines)
    assert cli.main(["list", "--json"]) == 0
    (each,) = json.loads(capsys.readouterr().out)["runs"]
    assert (each["outcome"], each["wrong"]) == (outcome, wrong)
    assert (each["stalled_seconds"] is not None) is (outcome == "stalled")


# What is typed -> the exit code, and what is said, in one sentence; nothing is written.
MISTAKES = {
    ("strt",): (2, "Did you mean 'start'"),
    ("stop", "--", "x"): (2, "nothing goes behind --"),
    ("start", "a", "--like", "b"): (2, "--like b has a preset of its own"),
    ("start", "tinyy"): (1, "there is no preset tinyy: did you mean tiny?"),
    ("start",): (1, "say which preset: tiny, big"),
    ("start", "tiny", "--set", "stps=1"): (1, "has no argument 'stps': did you mean steps?"),
    ("start", "tiny", "--gpus", "0"): (1, "this host has no GPUs, by its data: leave out --gpus"),
    ("stop",): (1, "no run is running: see `train list`"),
    ("stop", "--across"): (1, "no run of several hosts is running: see `train list`"),
    ("resume", "nothing"): (1, "there is no run nothing: see `train list`"),
}


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...], site: Site, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(host, "load", lambda: changed(site, accelerator="cpu"))
    exit_code, sentence = MISTAKES[words]
    assert cli.main(words) == exit_code
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert [*site.runs.iterdir()] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [("st", ["start", "stop"]), ("start ", ["tiny", "big"]), ("why 2026", [NAME])],
)
def test_a_shell_completes_commands_presets_and_runs(
    line: str, words: list[str], site: Site, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    written(site)
    monkeypatch.setenv("_TRAIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"train {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" "))))
    with pytest.raises(SystemExit):
        cli.main([])
    assert [row.partition(",")[2] for row in capsys.readouterr().out.splitlines()] == words


def test_what_can_be_started_is_listed_with_its_arguments(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["presets"]) == 0
    head, tiny, big = capsys.readouterr().out.splitlines()
    assert head.split() == ["preset", "program", "arguments"]
    assert tiny.split()[:2] == ["tiny", "t.py"]
    assert big.startswith("big ")
