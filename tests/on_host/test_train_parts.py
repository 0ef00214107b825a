"""Parts of the launcher that stand on files and locks: logs, claims, checkpoints, code, runs."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.on_host.smoke.nvidia_smi import Answer
from pyinfra_gpu.on_host.train import (
    across,
    checkpoints,
    checks,
    claims,
    code,
    gpus,
    keeping,
    presets,
    record,
    resuming,
    room,
    rundir,
    stamp,
    units,
)
from pyinfra_gpu.on_host.train.across import Across
from pyinfra_gpu.on_host.train.checks import Asked
from pyinfra_gpu.on_host.train.commands import asking, trying
from pyinfra_gpu.on_host.train.errors import TrainError
from pyinfra_gpu.on_host.train.running import failure
from pyinfra_gpu.on_host.train.running.logs import LONGEST, Log
from pyinfra_gpu.on_host.train.running.messages import Messenger, Stall
from pyinfra_gpu.on_host.train.running.reserve import Reserve
from pyinfra_gpu.on_host.train.site import Site

GPUS = ["GPU-a", "GPU-b"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    state = tmp_path / "state"
    state.mkdir()
    return Site(
        prefix=str(tmp_path),
        python=str(tmp_path / "venv/bin/python"),
        checkout=str(tmp_path / "checkout"),
        env_file=str(tmp_path / "x.env"),
        env_names=(),
        state=str(state),
        stamp=str(tmp_path / "stamp.json"),
        lock=str(tmp_path / ".lock"),
        owner=None,
        accelerator="nvidia",
        rehearsal=True,
        ranks=2,
        torch="2.13.0",
    )


# -- logs


def texts(path: Path) -> list[str]:
    return [line.partition(" ")[2] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc"], ["ab", "c"]),
        ([b"1%\r2%\r", b"3%\n"], ["1%", "2%", "3%"]),
        ([b"a\r\nb"], ["a", "b"]),
        ([b"\n\n"], []),
        ([b"\xff\n"], ["\ufffd"]),
    ],
)
def test_lines_are_written_whole_however_they_come(
    tmp_path: Path, chunks: list[bytes], lines: list[str]
) -> None:
    told: list[str] = []
    log = Log(tmp_path / "x.log", 1 << 20, told.append)
    for chunk in chunks:
        log.feed(chunk)
    log.close()
    assert told == lines
    if lines:
        written = (tmp_path / "x.log").read_bytes().decode(errors="replace").splitlines()
        assert [line[25:] for line in written] == lines
        assert all(line[10] == "T" and line[23] == "Z" for line in written)


def test_a_gigabyte_without_a_line_end_stays_small_in_memory_and_on_disk(tmp_path: Path) -> None:
    told: list[str] = []
    log = Log(tmp_path / "x.log", 1 << 20, told.append)
    chunk = b"x" * (64 << 10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1 << 14):
        log.feed(chunk)
    log.feed(b"rest\nnext\n")
    log.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10  # KiB
    assert [len(line) for line in told] == [LONGEST + len(" [cut]"), 4]
    assert told[1] == "next"


def test_a_log_is_rotated_and_two_older_files_are_kept(tmp_path: Path) -> None:
    log = Log(tmp_path / "x.log", 1000)
    for number in range(200):
        log.feed(b"line %03d\n" % number)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    kept = [texts(tmp_path / name) for name in ("x.log.2", "x.log.1", "x.log")]
    assert [line for each in kept for line in each][-1] == "line 199"
    numbers = [int(line[5:]) for each in kept for line in each]
    assert numbers == list(range(numbers[0], 200))


def test_a_full_disk_loses_lines_says_how_many_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "x.log", 1 << 20)
    log.feed(b"one\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    log.feed(b"two\nthree\n")
    log.feed(b"".join(b"%d%s\n" % (number, b"x" * 100) for number in range(1000)))
    log.feed(b"the last words\n")
    monkeypatch.setattr(os, "write", write)
    log.feed(b"four\n")
    log.close()
    one, lost, *kept, last, four = texts(tmp_path / "x.log")
    assert (one, last, four) == ("one", "the last words", "four")
    assert lost == f"[{1002 - len(kept)} lines were lost here: the disk was full]"
    assert 10 < len(kept) < 100


def test_what_the_disk_did_not_take_is_written_at_the_end_where_room_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(tmp_path / ".reserve")
    assert (tmp_path / ".reserve").stat().st_blocks * 512 >= 1 << 20
    write, log = os.write, Log(tmp_path / "x.log", 1 << 20)

    def full(descriptor: int, text: bytes) -> int:
        if (tmp_path / ".reserve").exists():
            return write(descriptor, text[:10])
        return write(descriptor, text)

    monkeypatch.setattr(os, "write", full)
    log.feed(b"OSError: [Errno 28] No space left on device\n")
    reserve.give()
    log.close()
    first, second = (tmp_path / "x.log").read_text().splitlines()
    assert len(first) == 10  # a part of it that fitted
    assert second.endswith("Z OSError: [Errno 28] No space left on device")


# -- claims


def test_devices_are_claimed_all_or_none(site: Site) -> None:
    first = claims.claim(site, "one", GPUS, 1, None)
    assert isinstance(first, claims.Held)
    assert first.devices == ["GPU-a"]
    assert claims.claim(site, "two", GPUS, 2, None) == ["one"]
    assert claims.holders(site, GPUS) == {"GPU-a": "one"}
    second = claims.claim(site, "two", GPUS, 1, None)
    assert isinstance(second, claims.Held)
    assert second.devices == ["GPU-b"]
    first.release()
    second.release()
    assert claims.holders(site, GPUS) == {}


def test_who_waits_comes_first_and_in_order(site: Site) -> None:
    held = claims.claim(site, "zero", GPUS, 2, None)
    assert isinstance(held, claims.Held)
    one, two = claims.Ticket(site, "one", GPUS), claims.Ticket(site, "two", GPUS)
    assert claims.waiting(site) == ["one", "two"]
    held.release()
    assert claims.claim(site, "two", GPUS, 1, two) == ["one"]
    assert claims.claim(site, "jumper", GPUS, 1, None) == ["one", "two"]
    got = claims.claim(site, "one", GPUS, 1, one)
    assert isinstance(got, claims.Held)
    one.give_up()
    assert isinstance(claims.claim(site, "two", GPUS, 1, two), claims.Held)
    two.give_up()


def test_who_waits_for_another_gpu_does_not_stand_in_the_way(site: Site) -> None:
    waits = claims.Ticket(site, "one", ["GPU-a"])
    got = claims.claim(site, "two", ["GPU-b"], 1, None)
    assert isinstance(got, claims.Held)
    waits.give_up()


def test_the_ticket_of_a_process_that_is_gone_counts_for_nothing(site: Site) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: (claims.Ticket(site, "gone", GPUS), os._exit(9)))
    process.start()
    process.join(10)
    assert isinstance(claims.claim(site, "two", GPUS, 2, None), claims.Held)
    assert claims.waiting(site) == []
    assert list(site.queue.iterdir()) == []


def _race(site: Site, number: int, results: Any, over: Any) -> None:
    got = claims.claim(site, f"run{number}", GPUS, 1, None)
    results.put((number, got.devices if isinstance(got, claims.Held) else []))
    over.wait(60)


def test_of_twenty_that_race_for_two_gpus_two_get_one_each(site: Site) -> None:
    context = multiprocessing.get_context("fork")
    results, over = context.Queue(), context.Event()
    racing = [context.Process(target=_race, args=(site, n, results, over)) for n in range(20)]
    for process in racing:
        process.start()
    devices = [device for _ in racing for device in results.get(timeout=60)[1]]
    over.set()
    for process in racing:
        process.join(10)
    assert sorted(devices) == GPUS
    assert claims.holders(site, GPUS) == {}


# -- checkpoints

FOLDERS = presets.resolved(
    {
        "a": {
            "file": "train.py",
            "checkpoints": "{run}/checkpoints/step-*",
            "complete": ["complete.json", "rank{rank}.pt"],
            "resume": {"resume": "{checkpoint}"},
        }
    },
    "a",
)
FILES = presets.resolved(
    {
        "a": {
            "module": "scripts.base_train",
            "checkpoints": "{run}/{name}/model_*.pt",
            "complete": ["meta_{step}.json", "optim_{step}_rank{rank}.pt"],
            "resume": {"resume-from-step": "{step}"},
        }
    },
    "a",
)


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_newest_complete_checkpoint_is_taken_by_its_number(tmp_path: Path) -> None:
    for step in ("step-9", "step-40", "step-100"):
        for name in ("complete.json", "rank0.pt", "rank1.pt"):
            put(tmp_path / "checkpoints" / step / name)
    values: dict[str, object] = {"run": tmp_path}
    found = checkpoints.newest(FOLDERS, values, 2, 0)
    assert found is not None
    assert (found.path.name, found.step) == ("step-100", "100")
    (tmp_path / "checkpoints/step-100/complete.json").unlink()
    assert checkpoints.newest(FOLDERS, values, 2, 0).path.name == "step-40"  # type: ignore[union-attr]
    put(tmp_path / "checkpoints/step-40/rank1.pt", "")
    assert checkpoints.newest(FOLDERS, values, 2, 0).path.name == "step-9"  # type: ignore[union-attr]


@pytest.mark.parametrize(("ranks", "found"), [(1, False), (2, True), (3, False)])
def test_a_checkpoint_of_other_ranks_is_not_whole(tmp_path: Path, ranks: int, found: bool) -> None:
    folder = tmp_path / "mine"
    for name in ("model_000500.pt", "meta_000500.json"):
        put(folder / name)
    for rank in range(2):
        put(folder / f"optim_000500_rank{rank}.pt")
    values: dict[str, object] = {"run": tmp_path, "name": "mine"}
    newest = checkpoints.newest(FILES, values, ranks, 0)
    assert (newest is not None) is found
    if newest:
        assert newest.step == "000500"


def test_what_is_older_than_the_run_is_another_runs(tmp_path: Path) -> None:
    for name in ("complete.json", "rank0.pt"):
        put(tmp_path / "checkpoints/step-5" / name)
    assert checkpoints.newest(FOLDERS, {"run": tmp_path}, 1, time.time() + 60) is None


def test_checkpoints_are_looked_for_where_a_setting_puts_them(site: Site, tmp_path: Path) -> None:
    """The glob named the run's folder, whatever `--set checkpoints=` said: nothing was found."""
    example = Path(__file__).parents[2] / "examples/presets/tiny-gpt.json"
    preset = presets.resolved(json.loads(example.read_text()), "balanced")
    run = made(site)
    for folder, settings in (
        (run.folder / "checkpoints", []),
        (tmp_path / "shared", [f"checkpoints={tmp_path}/shared"]),
    ):
        given = presets.with_settings(preset, settings)
        for name in ("complete.json", "model.pt", "rank0.pt", "rank1.pt"):
            put(folder / "step-000050" / name)
        request = {"preset": given.as_json(), "ranks": 2}
        found = resuming.newest(run, request, rundir.later(-60))
        assert found is not None
        assert found.path == folder / "step-000050"
        # Two hosts with a rank each leave as much in a folder that they share.
        together = {**request, "ranks": 1, "across": {"hosts": ["a", "b"]}}
        assert resuming.newest(run, together, rundir.later(-60)) == found
        alone = {**together, "ranks": 2}
        assert resuming.newest(run, alone, rundir.later(-60)) is None


# -- code


@pytest.fixture
def checkout(site: Site) -> Path:
    folder = Path(site.checkout)
    folder.mkdir()
    put(folder / "train.py", "print('one')\n")
    put(folder / ".gitignore", "data/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "one")
    return folder


def git(folder: Path, *words: str) -> str:
    run = ["git", "-C", str(folder), *words]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


def test_the_code_of_a_run_is_the_commit_and_what_was_changed_in_it(
    checkout: Path, tmp_path: Path
) -> None:
    commit = code.commit(checkout)
    assert commit is not None
    put(checkout / "train.py", "print('two')\n")
    put(checkout / "new.py", "print('new')\n")
    put(checkout / "data/large.bin")
    before = git(checkout, "status", "--porcelain")
    diff = tmp_path / "code.diff"
    diff.write_bytes(code.difference(checkout))
    assert git(checkout, "status", "--porcelain") == before
    put(checkout / "train.py", "print('three')\n")
    folder = tmp_path / "code"
    code.lay_out(checkout, folder, commit, diff)
    assert (folder / "train.py").read_text() == "print('two')\n"
    assert (folder / "new.py").read_text() == "print('new')\n"
    assert not (folder / "data").exists()
    git(checkout, "stash", "-q")
    code.lay_out(checkout, folder, commit, diff)
    assert (folder / "train.py").read_text() == "print('two')\n"


def test_submodules_are_laid_out_with_what_was_changed_in_them(
    checkout: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    put(inner / "lib.py", "one\n")
    identity = ("-c", "user.name=x", "-c", "user.email=x@y")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, *identity, "commit", "-qm", "one")
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "lib x")
    git(checkout, *identity, "commit", "-qm", "two")
    put(checkout / "lib x/lib.py", "two\n")
    put(checkout / "new.py", "new\n")
    run = tmp_path / "run"
    run.mkdir()
    parts = code.keep(checkout, run)
    assert [(path, name) for path, _, name in parts] == [
        ("", "code.diff"),
        ("lib x", "code.1.diff"),
    ]
    code.lay_out_all(checkout, run / "code", parts, run)
    code.lay_out_all(checkout, run / "code", parts, run)
    assert (run / "code/lib x/lib.py").read_text() == "two\n"
    assert (run / "code/new.py").read_text() == "new\n"


def test_an_empty_folder_has_no_commit(tmp_path: Path) -> None:
    assert code.commit(tmp_path) is None


def test_a_commit_that_is_not_there_is_one_sentence(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="commit 000000000000 cannot be laid out"):
        code.lay_out(checkout, tmp_path / "code", "0" * 40, tmp_path / "none")


# -- runs


def made(site: Site, state: str = "ended", **more: Any) -> rundir.Run:
    run = rundir.make(site, "tiny")
    document = {"schema": 1, "run": run.name, "state": state, "attempts": [], "nproc": 2}
    run.write({**document, **more})
    run.ask({"preset": FOLDERS.as_json(), "ranks": 2, "words": [], "code": []})
    return run


def test_runs_of_one_second_have_names_of_their_own(site: Site) -> None:
    names = [made(site).name for _ in range(3)]
    assert len(set(names)) == 3
    assert [run.name for run in rundir.all_runs(site)] == sorted(names)


def test_of_a_name_that_may_be_many_runs_the_newest_are_named_and_the_rest_counted(
    site: Site,
) -> None:
    """Four of eight were named, as if there were no others."""
    first = made(site).folder  # the others are of the same second, however slow this machine is
    for number in range(2, 12):
        shutil.copytree(first, site.runs / f"{first.name}-{number}")
    names = [run.name for run in rundir.all_runs(site)]
    assert names[-1].endswith("-11")
    with pytest.raises(TrainError, match=r"2026 may be 11 runs \(.*\): give more") as caught:
        rundir.chosen(site, "2026")
    assert f"({names[-1]}, {names[-2]}" in str(caught.value)
    assert "and 3 more)" in str(caught.value)


def test_a_run_that_nobody_supervises_is_lost(site: Site) -> None:
    attempt = {"number": 1, "outcome": None, "ended": None}
    run = made(site, "running", attempts=[attempt])
    document = run.settled()
    assert rundir.outcome(document) == "lost"
    assert document["state"] == "ended"
    assert run.read() == document


def test_on_a_full_disk_a_lost_run_is_told_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(site, "running", attempts=[{"number": 1, "outcome": None, "ended": None}])
    full = OSError(28, "No space left on device", "run.json")
    monkeypatch.setattr(rundir.Run, "write", lambda *_: (_ for _ in ()).throw(full))
    assert rundir.outcome(run.settled()) == "lost"
    seen = record.settled_run(run.folder)
    assert seen is not None
    assert seen.over


def test_a_run_that_is_supervised_goes_on(site: Site) -> None:
    run = made(site, "running", attempts=[{"number": 1, "outcome": None, "ended": None}])
    with run.supervised():
        assert run.settled()["state"] == "running"
    assert run.settled()["state"] == "ended"


def test_a_run_whose_unit_is_on_is_not_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the file of its lock was missing: it was called lost while it trained."""
    run = made(site, "running", attempts=[{"number": 1, "outcome": None, "ended": None}])
    monkeypatch.setattr(units, "active", lambda name: name == run.name)
    assert run.settled()["state"] == "running"
    assert run.alive()
    monkeypatch.setattr(units, "active", lambda _: False)
    assert rundir.outcome(run.settled()) == "lost"


def test_a_look_at_who_has_what_writes_nothing(site: Site) -> None:
    """On a full disk `start --dry` ended with the error of a file that it wanted to make."""
    before = sorted(Path(site.state).iterdir())
    assert claims.holders(site, ["a"]) == {}
    assert (claims.waiting(site), claims.ahead(site, "one")) == ([], [])
    assert sorted(Path(site.state).iterdir()) == before


def test_what_a_full_disk_did_not_take_is_told_with_the_folder_and_the_way_out(
    tmp_path: Path,
) -> None:
    told = room.remedy(OSError(28, "No space left on device", str(tmp_path / "runs/x/run.json")))
    assert f" MiB are free below {tmp_path}: delete what nobody needs there" in told
    assert room.remedy(OSError(13, "Permission denied", "/x")) == ""


def test_a_run_that_is_about_to_start_is_not_lost(site: Site) -> None:
    assert made(site, "starting").settled()["state"] == "starting"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', "[" * 100_000])
def test_a_damaged_document_is_one_sentence(site: Site, text: str) -> None:
    run = made(site)
    (run.folder / "run.json").write_text(text)
    with pytest.raises(TrainError, match=r"run\.json"):
        run.read()


def test_old_runs_go_and_their_checkpoints_stay(site: Site) -> None:
    few = Site(**{**{name: getattr(site, name) for name in site.__slots__}, "keep_runs": 1})
    with_one, without, newest = made(site), made(site), made(site)
    put(with_one.folder / "checkpoints/step-5/complete.json")
    put(with_one.folder / "attempts/1/rank0.log")
    keeping.forget_old(few)
    assert not without.folder.exists()
    assert newest.folder.exists()
    assert (with_one.folder / "checkpoints/step-5/complete.json").exists()
    assert not (with_one.folder / "attempts").exists()
    assert with_one.read()["state"] == "ended"


# -- what tries told


def tried(outcome: str, peak: int | None) -> dict[str, Any]:
    return {"outcome": outcome, "peak_mib": peak, "run": "x"}


TRIES = {
    "small": tried("finished", 9_000),
    "middle": tried("finished", 20_000),
    "large": tried("failed", 32_000),
    "on the CPU": tried("finished", None),
}


def in_its_code(
    site: Site, pattern: str, name: str = "20261122-120000-a"
) -> tuple[rundir.Run, Path]:
    """Return a run of a preset with this pattern, and a checkpoint that its program left."""
    folder = site.runs / name
    left = folder / "code/rel/x/step-000040"
    left.mkdir(parents=True)
    (left / "model.pt").write_text("x")
    run = rundir.Run(folder)
    saves = {"resume": {"resume": "{checkpoint}"}, "arguments": {"save": "rel/x"}}
    preset = presets.resolved({"a": {"file": "a.py", "checkpoints": pattern, **saves}}, "a")
    run.ask({"preset": preset.as_json(), "ranks": 1, "words": [], "code": []})
    run.write({"schema": 1, "run": name, "state": "ended", "attempts": [], "nproc": 1})
    return run, left


@pytest.mark.parametrize("pattern", ["{save}/step-*", "./rel/../rel/x/step-*"])
def test_relative_checkpoints_are_where_the_program_ran_and_are_kept(
    pattern: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were looked for where `train` was typed: none were found, and the run was removed."""
    run, left = in_its_code(site, pattern)
    monkeypatch.chdir(tmp_path)
    point = resuming.newest(run, run.request(), "2020-01-01T00:00:00.000Z")
    assert point is not None
    assert point.path == left
    for number in range(3):
        other, _ = in_its_code(site, "/none/*", f"2026112{number + 3}-120000-b")
        assert other.folder.is_dir()
    keeping.forget_old(replace(site, keep_runs=1))
    assert (left / "model.pt").is_file()
    assert run in rundir.all_runs(site) or run.folder.is_dir()
    assert len(rundir.all_runs(site)) == 2


def test_checkpoints_in_a_runs_folder_that_a_link_leads_to_are_kept(
    site: Site, tmp_path: Path
) -> None:
    run, left = in_its_code(site, f"{tmp_path}/link/step-*")
    (tmp_path / "link").symlink_to(left.parent)
    in_its_code(site, "/none/*", "20261123-120000-b")
    keeping.forget_old(replace(site, keep_runs=1))
    assert (left / "model.pt").is_file()
    assert (run.folder / "request.json").is_file()


def test_where_no_checkpoint_can_be_saved_no_run_starts(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed at its first save."""
    (tmp_path / "file").write_text("x")
    (closed := tmp_path / "closed").mkdir()
    site.runs.mkdir()
    # Whoever runs the tests may be root, who may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in (closed, Path("/")))

    def told(folder: str, **more: Any) -> list[str]:
        given = {"file": "a.py", "arguments": {"save": folder}, "checkpoints": "{save}/step-*"}
        preset = presets.resolved({"a": {**given, **more}}, "a")
        asked = Asked(preset=preset, devices=("cpu",), ranks=1)
        return [f"{each.what}: {each.remedy}" for each in checks._folders(site, asked)]

    assert told(str(tmp_path / "new/one")) == told("rel/x") == told("{run}/x") == []
    (wrong,) = told(f"{tmp_path}/file/x")
    assert wrong.startswith(
        f"checkpoints cannot be saved in {tmp_path}/file/x: {tmp_path}/file is no folder: give"
        " another folder with --set save=FOLDER, or"
    )
    (wrong,) = told("~/x")
    assert "only a shell replaces the ~" in wrong
    (wrong,) = told(f"{closed}/a/b")
    assert f"may not write in {closed}: give another folder with --set save=FOLDER" in wrong
    (wrong,) = told("x", checkpoints="/nosuch/*/step-*")
    assert wrong.startswith("checkpoints cannot be saved in /nosuch: ")
    assert "may not write in /: name another folder, or make it yours, `sudo install -d" in wrong


def test_what_a_try_told_is_said_before_a_start(site: Site) -> None:
    (Path(site.state) / "tries.json").write_text(json.dumps(TRIES))
    assert trying.warnings(site, "small") == []
    assert trying.warnings(site, "new") == []
    assert trying.warnings(site, "large") == ["preset large failed when it was tried, in x"]
    (Path(site.state) / "tries.json").write_text("[" * 100_000)
    assert trying.warnings(site, "large") == []


# -- what the owner is told


def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    said: list[str] = []
    sleeping = "sleep 60 & echo $! > $0; wait"
    command = ["/bin/sh", "-c", sleeping, str(tmp_path / "pid")]
    messenger = Messenger(command, said.append, limit_s=0.5)
    began = time.monotonic()
    messenger.tell({"event": "failed"})
    assert len(messenger.pids()) == 1
    messenger.finish()
    assert time.monotonic() - began < 100
    assert said == ["train: the command of training_notify took over 0 s"]
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if (
            not Path(f"/proc/{pid}").exists()
            or "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
        ):
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the command started is still there")


def test_a_command_that_is_not_there_is_a_line_in_the_log() -> None:
    said: list[str] = []
    messenger = Messenger(["/nonexistent/tell"], said.append)
    messenger.tell({"event": "failed"})
    messenger.finish()
    assert "cannot be run" in said[0]
    Messenger([], said.append).tell({"event": "failed"})
    assert len(said) == 1


def test_a_stall_is_told_once_each_time_it_begins() -> None:
    stall, times = Stall(), [0.0, 1.0, 2.0]
    assert stall.begun(times, 100) is None
    assert stall.begun(times, 400) == 398
    assert stall.begun(times, 500) is None
    assert stall.begun([*times, 501.0], 502) is None
    assert stall.begun([*times, 501.0], 6000) is not None


# -- what is read


def test_the_rank_that_failed_first_is_read_from_torchruns_summary() -> None:
    summary = failure.Summary()
    for line in (
        "Failures:",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "Root Cause (first observed failure):",
        "[1]:",
        "  time      : 2026-11-22_20:00:00",
        "  rank      : 1 (local_rank: 1)",
    ):
        summary.read(line)
    assert summary.first == 1


def test_the_rank_that_failed_first_is_the_one_with_the_oldest_error(tmp_path: Path) -> None:
    for rank, moment in ((0, "1790000002"), (1, "1790000001"), (2, "nonsense")):
        message = {"message": {"extraInfo": {"timestamp": moment}}}
        put(tmp_path / f"torchrun/x_y/attempt_0/{rank}/error.json", json.dumps(message))
    assert failure.first_by_files(tmp_path) == 1


def test_gpus_and_their_users_are_read_from_nvidia_smi() -> None:
    text = "1, GPU-b, 32607, [N/A], NVIDIA GeForce RTX 5090\n0, GPU-a, 32607, 512, X\n"
    told = gpus.listed(lambda command: Answer(0, text))
    assert [(gpu.index, gpu.uuid, gpu.used_mib) for gpu in told] == [
        (0, "GPU-a", 512),
        (1, "GPU-b", 0),
    ]
    one = "GPU-a, 12, /usr/bin/python3\n"
    assert gpus.users(lambda command: Answer(0, one)) == {"GPU-a": ["pid 12 (python3)"]}
    assert gpus.users(lambda command: Answer(0, "No running processes found\n")) == {}


@pytest.mark.parametrize(
    "answer", [Answer(9, "couldn't communicate"), Answer(0, "GPU-a, 1, x\nUnable to tell\n")]
)
def test_a_driver_that_does_not_tell_all_is_no_free_gpu(answer: Answer) -> None:
    with pytest.raises(TrainError):
        gpus.users(lambda command: answer)


def test_a_stamp_tells_what_changed_since() -> None:
    from pyinfra_gpu.on_host.fingerprint import NAMES, part

    noted = {"fingerprint": "".join(part(name) for name in NAMES)}
    same: dict[str, object] = {name: name for name in NAMES}
    assert stamp.changed(noted, same) == []
    assert stamp.changed(noted, {**same, "the boot": "another"}) == ["the boot"]
    assert stamp.changed({"fingerprint": "short"}, same) == ["pyinfra-gpu"]


# -- several hosts


def part(host: str, port: int) -> Across:
    told = {
        "hosts": ["ws1", "ws2"],
        "host": host,
        "run": None,
        "commit": None,
        "addresses": ["127.0.0.1"],
        "port": port,
        "token": "ab" * 16,
    }
    return across.from_json(told)


def test_hosts_meet_at_a_port_that_was_free_and_torchrun_is_told_where() -> None:
    port = across.free_port()
    with ThreadPoolExecutor() as pool:
        met = list(pool.map(lambda host: across.meet(part(host, port), lambda: None), HOSTS))
    for host, each in zip(HOSTS, met, strict=True):
        words = across.rendezvous_words(part(host, port), "x", each)
        assert words[words.index("--rdzv-endpoint") + 1] == f"127.0.0.1:{port}"
        assert words[-1].startswith(f"is_host={'true' if host == 'ws1' else 'false'},")
        assert across.variables(each) == {
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
        }


HOSTS = ("ws1", "ws2")


@pytest.mark.parametrize(
    ("host", "words"), [("ws1", "ws2 did not come to this run"), ("ws2", "could not reach ws1 at")]
)
def test_a_host_that_does_not_come_ends_it_for_the_others(
    host: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "MEETING_S", 0.3)
    with pytest.raises(TrainError, match=words):
        across.meet(part(host, across.free_port()), lambda: None)


@pytest.mark.parametrize(
    "changed",
    [
        {"hosts": ["ws1"]},
        {"host": "ws3"},
        {"host": "ws2", "port": 0},
        {"addresses": ["$(reboot)"]},
        {"hosts": ["ws1", "ws2\n"]},
        {"token": "ab"},
        {"token": "x" * 32},
        {"port": "1"},
        {"further": 1},
    ],
)
def test_a_part_that_the_controller_did_not_write_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(TrainError, match="is started by `pyinfra-gpu train"):
        across.from_json({**part("ws1", 0).as_json(), **changed})


def test_a_disk_on_which_nothing_can_be_removed_gives_its_room_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(tmp_path / ".reserve")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
    reserve.give()
    reserve.give()
    assert (tmp_path / ".reserve").stat().st_blocks == 0


def test_the_runs_own_folder_is_none_that_several_hosts_share() -> None:
    arguments = {"steps": 5, "checkpoints": "{run}/checkpoints"}
    preset = presets.Preset(name="tiny", file="train.py", arguments=arguments)
    asking.refuse_across(Asked(preset=preset, devices=("cpu",), ranks=1))
    with pytest.raises(
        TrainError,
        match=r"--across GROUP -- tiny --set checkpoints=FOLDER`, with a folder that all",
    ):
        asking.refuse_across(Asked(preset=preset, devices=("cpu",), ranks=1, hosts=2))
