"""The usual failures, each on one screen that was looked at: what failed, why, and what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from train.run_directory import NOW, iso, steps, write_run

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.train import account, calling, evidence
from pyinfra_gpu.on_host.train.advice import decisive, next_smaller, smaller
from pyinfra_gpu.on_host.train.explanation import Explanation
from pyinfra_gpu.on_host.train.record import Run, read_run
from pyinfra_gpu.on_host.train.why import why

HERE = Path(__file__).parent
COMMAND = [
    *("torchrun", "--nproc-per-node=2", "-m", "scripts.base_train", "--depth=20"),
    *("--device-batch-size=16", "--max-seq-len=2048", "--total-batch-size=524288"),
]
NAN = {"step": 300, "steps": 5960, "loss": None, "not_finite": "nan", "time": iso(NOW)}


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of whoever runs the tests is not what they are about."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 40))


def quiet(since: float) -> Sequence[str]:
    return ()


def text(name: str) -> str:
    return (HERE / "failures" / name).read_text(encoding="utf-8")


class Case(NamedTuple):
    id: str
    fields: dict[str, Any]
    metrics: list[Any]
    now: float = NOW


FAILED = {"state": "ended", "outcome": "failed", "attempt": {"exit": 1, "first_failed_rank": 1}}
CASES = {
    "memory": Case("cuda-out-of-memory", {**FAILED, "command": COMMAND}, steps(1)),
    "wandb": Case("wandb-not-logged-in", FAILED, []),
    "libuv": Case("store-without-libuv", {**FAILED, "attempt": {"exit": 1}}, []),
    "port": Case("store-port-in-use", FAILED, []),
    "disk": Case("disk-full", FAILED, steps(500)),
    "hang": Case("run-no-progress", {}, steps(300), NOW + 1500),
    "nan": Case("loss-not-finite", {}, [*steps(300), NAN]),
    # As they were on a host when somebody sent SIGKILL to one process of a run of two ranks.
    "killed_rank": Case(
        "rank-killed", {**FAILED, "attempt": {"exit": 1, "first_failed_rank": 0}}, steps(18)
    ),
    "killed_agent": Case("rank-killed", {**FAILED, "attempt": {"exit": -9}}, steps(12)),
    "killed_supervisor": Case(
        "run-supervisor-ended", {"state": "ended", "outcome": "lost"}, steps(33)
    ),
}


def explained(name: str, root: Path, **more: Any) -> Explanation:
    case = CASES[name]
    ended = case.fields.get("state") == "ended"
    if name in ("libuv", "killed_rank"):
        logs = {"launcher.log": text(f"{name}.log")}
    elif name.startswith("killed"):
        logs = {"rank0.log": "step 11/600  loss 0.3636\n"}
    else:
        logs = {"rank0.log": "loading\n", "rank1.log": text(f"{name}.log")}
    if ended and "rank1.log" in logs:
        logs["launcher.log"] = text("launcher.txt")
    folder = write_run(root, metrics=case.metrics, logs=logs, **case.fields)
    return why(folder, known=catalogue(), now=case.now, kernel=quiet, **more)


@pytest.mark.parametrize("name", CASES)
def test_the_screen_is_the_one_that_was_looked_at(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PYINFRA_GPU_GOLDEN=1` writes them anew: then look at each."""
    monkeypatch.setattr(account, "places", lambda run: [Path("/opt/pyinfra-gpu/state/runs")])
    found = explained(name, tmp_path)
    shown = found.screen()
    assert found.id == CASES[name].id
    assert found.cause
    assert len(shown.splitlines()) <= 24
    assert all(len(line) <= 80 for line in shown.splitlines())
    golden = HERE / "screens" / f"why_{name}.txt"
    if os.environ.get("PYINFRA_GPU_GOLDEN"):
        golden.write_text(shown + "\n", encoding="utf-8")
    assert shown + "\n" == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_and_plain_data_say_it_too(name: str, tmp_path: Path) -> None:
    found = explained(name, tmp_path)
    assert found.cause in found.summary()
    assert found.as_json()["id"] == found.id
    assert len(found.as_json()["fix"]) >= 2  # type: ignore[arg-type]


def test_memory_is_advised_in_this_runs_own_words(tmp_path: Path) -> None:
    found = explained("memory", tmp_path, smaller_preset="conservative")
    first, second, third, *_ = found.fix
    assert "`train start balanced --set depth=20 --set device-batch-size=8`" in first
    assert "`train start balanced --set depth=20 --set max-seq-len=1024`" in second
    assert "`train start conservative`" in third
    assert found.rank == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["python", "train.py", "--batch-size", "32"], ["Halve batch-size, which is 32"]),
        (["x", "--per_device_train_batch_size=4"], ["Halve per_device_train_batch_size"]),
        (["x", "--training.local_batch_size", "8"], ["Halve training.local_batch_size"]),
        (["x", "--training.seq_len=8192"], ["Halve training.seq_len, which is 8192"]),
        (["x", "--micro-batch-size=2", "--seq-length=4096"], ["Halve micro-b", "Halve seq-length"]),
        (["x", "--total-batch-size=524288", "--global_batch_size=64"], []),
        (["x", "--batch-size=1", "--max-seq-len=256"], []),
        (["x", "--batch-size=many", "--seq_len"], []),
        (["x", "--batch-size"], []),
        ([], []),
    ],
)
def test_the_arguments_that_decide_are_known_by_their_names(
    command: list[str], told: list[str]
) -> None:
    found = smaller(Run(folder=Path(), name="x", command=tuple(command)))
    assert len(found) == len(told)
    for step, words in zip(found, told, strict=True):
        assert step.startswith(words)


def test_halving_the_batch_changes_nothing_where_a_total_is_given() -> None:
    whole = ["x", "--batch-size=16", "--total-batch-size=64"]
    (kept,) = smaller(Run(folder=Path(), name="x", command=tuple(whole)))
    (changed,) = smaller(Run(folder=Path(), name="x", command=("x", "--batch-size=16")))
    assert "(the total stays, the result is the same)" in kept
    assert "the result changes a little" in changed


def test_the_advice_for_a_run_of_several_hosts_starts_one_on_all_of_them(tmp_path: Path) -> None:
    """It would have started one on the host that was asked alone."""
    command = ["torchrun", "train.py", "--batch-size=16"]
    logs = {"rank0.log": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB"}
    more = {"command": command, "across": ["ws1", "ws2"], "logs": logs}
    folder = write_run(tmp_path, state="ended", outcome="failed", **more)
    (folder / "request.json").write_text('{"across": {"group": "gpu", "host": "ws1"}}')
    run = read_run(folder)
    assert run is not None
    (halved, other) = smaller(run, "small")
    all_ = "`pyinfra-gpu train INVENTORY start --across gpu --"
    assert f"{all_} balanced --set depth=20 --set batch-size=8`" in halved
    assert f"{all_} small`" in other


def test_the_advice_keeps_the_gpus_and_the_settings_of_the_run(tmp_path: Path) -> None:
    """It was a command for all GPUs."""
    overrides = {"lr": "0.1", "device-batch-size": "16"}
    case = CASES["memory"]._replace(fields={**CASES["memory"].fields, "overrides": overrides})
    folder = write_run(tmp_path, logs={"rank1.log": text("memory.log")}, **case.fields)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, smaller_preset="tiny", gpus="0,2")
    first, second, third, *_ = found.fix
    kept = "`train start balanced --gpus 0,2 --set lr=0.1"
    assert f"{kept} --set device-batch-size=8`" in first
    assert f"{kept} --set device-batch-size=16 --set max-seq-len=1024`" in second
    assert "`train start tiny --gpus 0,2`" in third


CHAIN: dict[str, dict[str, Any]] = {
    "small": {"arguments": {"batch": 1, "batch-size": 2, "seq-len": 512}},
    "middle": {"extends": "small", "arguments": {"batch-size": 8}},
    "large": {"extends": "middle", "arguments": {"batch-size": 16}},
    "circle": {"extends": "circle"},
    "odd": {"extends": 3},
}


@pytest.mark.parametrize(
    ("preset", "words", "ran", "told"),
    [
        ("large", "--batch-size=16", {"small", "middle"}, "middle"),
        ("large", "--batch-size=16", {"small", "large"}, "small"),
        ("large", "--batch-size=4", {"small", "middle"}, "small"),
        ("large", "--batch-size=2", {"small", "middle"}, ""),
        ("large", "--batch-size=16 --seq-len=256", {"small", "middle"}, ""),
        ("large", "--depth=4", {"small", "middle"}, ""),
        ("large", "--batch-size=16", set(), ""),
        ("small", "--batch-size=16", {"small", "middle"}, ""),
        ("circle", "--batch-size=16", {"circle"}, ""),
        ("odd", "--batch-size=16", {"small"}, ""),
        ("gone", "--batch-size=16", {"small"}, ""),
    ],
)
def test_the_next_smaller_preset_is_one_that_ran_here_and_needs_less(
    preset: str, words: str, ran: set[str], told: str
) -> None:
    """A run of `--set batch-size=4` was told to take a preset of 8."""
    failed = decisive(Run(folder=Path(), name="x", command=tuple(words.split())))
    assert next_smaller(preset, CHAIN, ran, failed) == told


def test_a_process_that_the_kernel_killed_is_told_from_its_log(tmp_path: Path) -> None:
    killed = {"state": "ended", "outcome": "failed", "attempt": {"exit": -9}}
    folder = write_run(tmp_path, logs={"rank0.log": "step 1\n"}, **killed)
    line = "Nov 22 20:00:00 ws1 kernel: Out of memory: Killed process 4242 (python) total-vm:1kB"
    found = why(folder, known=catalogue(), now=NOW, kernel=lambda since: ["Nov usb 1-1", line])
    assert found.id == "killed-out-of-memory"
    assert "exit code -9 (SIGKILL)" in found.screen()


@pytest.mark.parametrize("code", [-9, 137])
def test_a_killed_agent_is_explained_as_a_killed_rank_is(code: int, tmp_path: Path) -> None:
    killed = {"state": "ended", "outcome": "failed", "attempt": {"exit": code}}
    folder = write_run(tmp_path, logs={"rank0.log": "step 1\n"}, **killed)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert found.id == "rank-killed"
    assert "SIGKILL" in found.cause
    assert "No cause found" not in found.screen()


def test_a_run_that_was_stopped_by_force_was_not_killed(tmp_path: Path) -> None:
    stopped = {"state": "ended", "outcome": "stopped", "attempt": {"exit": -9}}
    assert why(write_run(tmp_path, **stopped), known=catalogue(), now=NOW, kernel=quiet).id == ""


TAIL = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
REFUSALS = [
    "train.py: error: argument --batch-size: invalid int value: 'abc'",
    "train.py: error: unrecognized arguments: --foo 4",
    "train.py: error: the following arguments are required: --batch-size",
    "Error: Invalid value for '--batch-size': 'abc' is not a valid integer.",
    "│ Error parsing --batch-size: invalid literal for int() with base 10: 'abc' │",
]


@pytest.mark.parametrize("line", REFUSALS)
def test_a_command_line_that_the_program_refuses_is_the_cause(line: str, tmp_path: Path) -> None:
    logs = {"rank0.log": f"usage: train.py [-h]\n{line}\n", "launcher.log": TAIL}
    folder = write_run(tmp_path, state="ended", outcome="failed", logs=logs)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert found.id == "program-command-line"
    assert found.evidence == (line,)
    assert "--dry" in found.fix[0]


def test_a_killed_supervisor_is_told_with_the_way_on(tmp_path: Path) -> None:
    """However late somebody looks: the run did not stand still until then."""
    folder = write_run(tmp_path, alive=False, metrics=steps(300), logs={"rank0.log": "step 1\n"})
    found = why(folder, known=catalogue(), now=NOW + 9000, kernel=quiet)
    assert found.id == "run-supervisor-ended"
    assert found.what.endswith("was lost at step 299: its supervisor was ended")
    assert f"train resume {folder.name}" in found.screen()
    assert "No cause found" not in found.screen()


def test_after_a_power_cut_no_supervisor_is_blamed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, alive=False, attempt={"boot_id": "another"})
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert found.id == "run-host-restarted"
    assert "supervisor" not in found.what
    assert "No cause found" not in found.screen()
    assert "pyinfra INVENTORY tasks/smoke.py" in found.fix[0]
    assert f"`train resume {folder.name}`" in found.fix[1]


GO_ON = "Go on from step-001800: `train resume x`"


@pytest.mark.parametrize("name", ["killed_rank", "killed_agent", "wandb", "disk"])
def test_the_last_step_of_what_failed_is_the_way_on(name: str, tmp_path: Path) -> None:
    """It said how to find who had killed a rank, and not how to go on."""
    shown = explained(name, tmp_path, go_on=GO_ON).screen()
    assert re.search(r"\n  \d. .*[Gg]o on from step-001800:\n       train resume x$", shown)
    assert len(shown.splitlines()) <= 24


def test_nobody_is_told_to_go_on_with_what_does_not_fit_or_twice(tmp_path: Path) -> None:
    for number, name in enumerate(("memory", "killed_supervisor", "hang")):
        assert explained(name, tmp_path / str(number), go_on=GO_ON).go_on == ""


def test_a_failure_without_a_cause_has_the_way_on_as_well(tmp_path: Path) -> None:
    log = "".join(f"line {n}\n" for n in range(50)) + "ValueError: a bug of one's own\n"
    folder = write_run(tmp_path, state="ended", outcome="failed", logs={"rank0.log": log})
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, go_on=GO_ON)
    assert found.screen().endswith(f"\n{GO_ON}")
    assert len(found.screen().splitlines()) <= 24


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5 << 20))
    assert "is full now: 5 MiB are free" in explained("disk", tmp_path).screen().replace(
        "\n  ", " "
    )


def test_what_nothing_explains_ends_with_its_last_lines(tmp_path: Path) -> None:
    log = "".join(f"line {n}\n" for n in range(50)) + "ValueError: a bug of one's own\n"
    folder = write_run(tmp_path, state="ended", outcome="failed", logs={"rank0.log": log})
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert (found.id, found.cause) == ("", "")
    assert found.summary().endswith("no cause is known")
    assert "  > ValueError: a bug of one's own" in found.screen()
    assert len(found.screen().splitlines()) <= 24


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "goes on: nothing has failed"),
        ({"state": "starting"}, "is starting: nothing has failed"),
        ({"state": "stopping"}, "is being ended: nothing has failed"),
        (
            {"state": "ended", "outcome": "finished"},
            "finished after 1 h 39 min: nothing has failed",
        ),
        ({"state": "ended", "outcome": "stopped"}, "was stopped after 1 h 39 min"),
        (
            {"attempt": {"boot_id": "another"}, "alive": False},
            "was lost before its first step: the host was",
        ),
        (
            {"state": "ended", "outcome": "lost"},
            "was lost before its first step: its supervisor was ended",
        ),
        (
            {"state": "ended", "outcome": "lost", "attempt": {"boot_id": ""}},
            "was lost after 1 h 39 min",
        ),
    ],
)
def test_a_run_that_did_not_fail_says_so(fields: dict[str, Any], told: str, tmp_path: Path) -> None:
    found = why(write_run(tmp_path, **fields), known=catalogue(), now=NOW, kernel=quiet)
    assert told in found.what
    if "nothing has failed" in told:
        assert "No cause found" not in found.screen()


PEER = (
    "[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection"
    " closed by peer [10.77.3.11]:4520. This is typically caused by a remote worker crashing."
)
STORE = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d"
    " store has failed. See inner exception for details."
)
TOGETHER: dict[str, Any] = {"state": "ended", "outcome": "failed", "across": ["ws1", "ws2"]}


@pytest.mark.parametrize(
    "logs",
    [{"rank0.log": PEER}, {"launcher.log": STORE}, {"rank0.log": PEER, "launcher.log": STORE}],
)
def test_a_host_that_lost_its_peers_says_that_the_cause_may_be_there(
    logs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named the network, which had done its work."""
    folder = write_run(tmp_path, logs=logs, **TOGETHER)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, others=["ws1"])
    assert (found.secondary, found.cause, found.across) == (True, "", ("ws1", "ws2"))
    (fact,) = found.facts
    assert fact.startswith("its ranks lost those of ws1: the cause may be there, see `train why 2")
    assert "on the controller" in fact
    assert "No cause found" not in found.screen()
    caller = calling.Caller(inventory="lab.py", chosen=("--limit", "ws2"))
    monkeypatch.setenv(calling.VARIABLE, caller.as_text())
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, others=["ws1"])
    assert found.facts[0].endswith(f"`pyinfra-gpu train lab.py why --limit ws1 -- {found.run}`")


def test_a_host_that_knows_a_cause_of_its_own_blames_no_other(tmp_path: Path) -> None:
    logs = {"rank0.log": f"OSError: [Errno 28] No space left on device\n{PEER}"}
    folder = write_run(tmp_path, logs=logs, **TOGETHER)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, others=["ws1"])
    assert (found.secondary, found.id) == (False, "disk-full")
    assert "ws1" not in found.screen()


def test_a_file_of_another_hosts_rank_that_is_not_here_is_a_folder_that_is_not_shared(
    tmp_path: Path,
) -> None:
    """It found no cause."""
    line = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    cut_off = {"logs": {"rank0.log": line.format("/tmp/own/step-000050/rank2.pt")}}
    more = {**TOGETHER, **cut_off, "checkpoints": "/tmp/own/step-*"}
    found = why(write_run(tmp_path, **more), known=catalogue(), now=NOW, kernel=quiet)
    assert found.id == "run-checkpoint-not-shared"
    assert "is not shared by all hosts" in " ".join(found.cause.split())
    assert "/tmp/own/step-000050/rank2.pt" in found.screen()
    for number, other in enumerate(({"across": None}, {"checkpoints": "/tmp/other/step-*"})):
        folder = write_run(tmp_path / str(number), **{**more, **other})
        assert (
            why(folder, known=catalogue(), now=NOW, kernel=quiet).id != "run-checkpoint-not-shared"
        )


def test_when_a_host_failed_is_when_its_rank_said_so(tmp_path: Path) -> None:
    """It was the attempt's end: the host with the longer clean-up seemed to be the later one."""
    logs = {"rank0.log": "OSError: [Errno 28] No space left on device"}
    folder = write_run(tmp_path, logs=logs, **TOGETHER)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, others=["ws1"])
    assert found.ended == NOW - 60
    error = folder / "attempts/1/torchrun/x/attempt_0/0/error.json"
    error.parent.mkdir(parents=True)
    error.write_text(json.dumps({"message": {"extraInfo": {"timestamp": str(NOW - 70)}}}))
    assert why(folder, known=catalogue(), now=NOW, kernel=quiet).ended == NOW - 70


def test_a_run_of_several_hosts_goes_on_with_all_of_them(tmp_path: Path) -> None:
    """`train resume` of it on one host is refused."""
    more = {"across": ["ws1", "ws2"], "state": "ended", "outcome": "lost"}
    found = why(write_run(tmp_path, **more), known=catalogue(), now=NOW, kernel=quiet)
    assert found.id == "run-supervisor-ended"
    assert "train INVENTORY resume --across GROUP" in found.fix[0]
    assert "train INVENTORY start --across GROUP -- --like" in found.fix[1]


def test_a_run_that_waits_for_other_hosts_says_for_which(tmp_path: Path) -> None:
    folder = write_run(tmp_path, state="starting", across=["ws1", "ws2"])
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, others=["ws1"])
    assert found.screen().endswith("is starting: nothing has failed\n  it waits for ws1")


@pytest.mark.parametrize("width", [40, 120])
def test_a_screen_fits_the_terminal_that_is_there(width: int, tmp_path: Path) -> None:
    logs = {"rank0.log": "train.py: error: unrecognized arguments: --foo"}
    folder = write_run(tmp_path, state="ended", outcome="failed", logs=logs)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    lines = found.screen(width).splitlines()
    words = [line for line in lines if not line.strip().startswith(("`", "df", "du", "sudo"))]
    assert max(map(len, words)) <= width
    assert max(map(len, words)) > width * 3 // 4


RETRY = "retry 1 of 3, after download-broke-off, which mostly passes"


def test_a_run_that_waits_to_begin_again_tells_why_and_until_when(tmp_path: Path) -> None:
    broken = "urllib3.exceptions.IncompleteRead: IncompleteRead(7 bytes read, 9 more expected)"
    folder = write_run(
        tmp_path,
        state="waiting",
        outcome="failed",
        attempt={"cause": "download-broke-off"},
        waits={"for": RETRY, "until": iso(NOW + 60)},
        logs={"rank0.log": broken},
    )
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert (found.id, found.passing) == ("download-broke-off", True)
    assert re.search(rf"it waits until \d\d:01:00 for {RETRY}", " ".join(found.facts))


def test_a_run_that_began_again_tells_of_the_attempt_before(tmp_path: Path) -> None:
    folder = write_run(tmp_path, outcome="failed", attempt={"cause": "download-broke-off"})
    told = json.loads((folder / "run.json").read_text())
    second = {**told["attempts"][0], "number": 2, "outcome": None, "cause": None}
    second["resumed_from"] = "/x/checkpoints/step-000040"
    told["attempts"].append(second)
    (folder / "run.json").write_text(json.dumps(told))
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert "goes on: nothing has failed" in found.what
    assert found.facts == ("attempt 1 failed (download-broke-off); 2 began from step-000040",)


def test_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    assert "holds no run" in why(tmp_path / "x").what


def test_a_log_of_a_gigabyte_and_hostile_lines_is_read_at_its_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path, logs={"rank0.log": "x"}, **FAILED)
    log = folder / "attempts" / "1" / "rank0.log"
    with log.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(
            b"\n\x1b]0;owned\x07\x1b[2JOSError: [Errno 28] No space left on device: '/\xff'\n"
        )
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert found.id == "disk-full"
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", found.screen())


def test_the_kernels_own_lines_are_asked_for_and_never_waited_for() -> None:
    assert isinstance(evidence.kernel_lines(NOW), list | tuple)


def test_of_no_cause_the_log_is_named_whose_end_is_shown(tmp_path: Path) -> None:
    """It was in the JSON alone, and rank 0's while rank 1 had failed."""
    logs = {"rank0.log": "step 1\n", "rank1.log": "ValueError: a bug of one's own\n"}
    failed = write_run(tmp_path, logs=logs, **FAILED)
    found = why(failed, known=catalogue(), now=NOW, kernel=quiet)
    assert found.more == f"train logs {failed.name} --rank 1"
    assert f"The log ends with this (`{found.more}` shows it):" in " ".join(found.screen().split())
    launched = write_run(
        tmp_path / "b", logs={"launcher.log": "odd\n"}, state="ended", outcome="failed"
    )
    found = why(launched, known=catalogue(), now=NOW, kernel=quiet)
    assert found.more.endswith("--launcher")


def test_a_full_disk_is_looked_for_where_the_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named /, /tmp and /var; the checkpoints were on none of them."""
    usage = shutil.disk_usage("/")
    small = tmp_path / "small"
    small.mkdir()

    def free(path: Path) -> Any:
        return usage._replace(free=0 if Path(path) == small else 1 << 40)

    monkeypatch.setattr(shutil, "disk_usage", free)
    monkeypatch.setattr(account, "_device", lambda path: str(path))
    line = "OSError: [Errno 28] No space left on device"
    more = {"logs": {"rank1.log": line}, "checkpoints": f"{small}/new/step-*"}
    folder = write_run(tmp_path, **FAILED, **more)
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet, go_on=GO_ON)
    assert f"the disk that holds {small} is full now: 0 MiB are free" in found.facts
    assert found.go_on.startswith("When there is room: go on from step-001800")


def test_a_resumed_run_that_took_no_step_failed_before_its_first(tmp_path: Path) -> None:
    """It was told to have failed at the step that the attempt before had reached."""
    folder = write_run(tmp_path, metrics=steps(411), logs={"rank1.log": "x"}, **FAILED)
    told = json.loads((folder / "run.json").read_text())
    (folder / "attempts/2").mkdir()
    told["attempts"].append({**told["attempts"][0], "number": 2, "resumed_from": "/x/step-400"})
    (folder / "run.json").write_text(json.dumps(told))
    found = why(folder, known=catalogue(), now=NOW, kernel=quiet)
    assert found.what.endswith("before its first step")
    assert "attempt 1 failed; 2 began from step-400" in found.facts
