"""A run on a screen of 80 x 24, and as lines: right, bounded, and nothing but what was written."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from train.run_directory import NOW, iso, steps, write_run

from pyinfra_gpu.on_host.smoke.nvidia_smi import Answer
from pyinfra_gpu.on_host.train import watch as watching
from pyinfra_gpu.on_host.train import words
from pyinfra_gpu.on_host.train.record import read_run
from pyinfra_gpu.on_host.train.watch import FAILED, LEFT, UNREADABLE, state, watch
from pyinfra_gpu.on_host.train.watch.history import (
    MOST_POINTS,
    Curve,
    History,
    sampled_losses,
)
from pyinfra_gpu.on_host.train.watch.machine import Gpus, Memory, memory
from pyinfra_gpu.on_host.train.watch.plain import line
from pyinfra_gpu.on_host.train.watch.screen import screen
from pyinfra_gpu.on_host.train.watch.state import Seen, Watched, newest_checkpoint

GOLDEN = Path(__file__).parent / "screens"
TWO_GPUS = """\
0, GPU-1, NVIDIA GeForce RTX 5090, 98, 28774, 32607, 71, 561.20, 575.00, 0x0000000000000000
1, GPU-2, NVIDIA GeForce RTX 5090, 97, 28774, 32607, 84, 574.90, 575.00, 0x0000000000000004
"""
SPEED = {"tokens_per_second": 368417.0, "mfu": 47.62, "seconds": 1.423}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(state, "memory", lambda: Memory(used_mib=62464.0, total_mib=128000.0))


def answering(text: str) -> Any:
    """nvidia-smi, which prints this."""
    return lambda command: Answer(int("not a valid field" in text), text)


def seen(folder: Path, gpus: str = TWO_GPUS, *, now: float = NOW) -> Seen:
    run = read_run(folder)
    assert run is not None
    found = Gpus(run.gpus, answering(gpus))
    return Watched(folder, run, gpus=found, clock=lambda: now).look()


def shown(it: Seen, width: int = 80, height: int = 24) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(screen(it, width, height))
    lines = [text.rstrip() for text in file.getvalue().splitlines()]
    assert len(lines) <= height
    assert all(len(text) <= width for text in lines)
    return "\n".join(lines) + "\n"


def checkpoints(root: Path) -> str:
    folder = root / "checkpoints" / "step-004000"
    folder.mkdir(parents=True)
    (folder / "all.pt").write_text("x")
    os.utime(folder, (NOW - 300, NOW - 300))
    return str(folder.parent / "step-*")


def saving(folder: Path, pattern: str) -> Path:
    """Have a run leave checkpoints there, each with one file."""
    preset = {"name": "a", "file": "a.py", "checkpoints": pattern, "complete": ["all.pt"]}
    request = {"preset": preset, "ranks": 2, "across": None}
    (folder / "request.json").write_text(json.dumps(request))
    return folder


# Of an address without a name: it is no warning of anybody's concern.
NAMELESS = (
    "[W1123 04:02:50.094757664 socket.cpp:207] [c10d] The hostname of the client socket cannot be"
    " retrieved. err=-3"
)


def running(root: Path) -> Seen:
    warning = "/opt/venv/torch/nn/module.py:1762: UserWarning: the loader waits for its workers"
    logs = {"rank0.log": "step 00420\n", "rank1.log": f"{warning}\n{NAMELESS}\nwell\n"}
    pattern = checkpoints(root)
    metrics = steps(4210, **SPEED)
    folder = write_run(root, metrics=metrics, logs=logs, checkpoints=pattern)
    return seen(saving(folder, pattern))


def on_cpu(root: Path) -> Seen:
    metrics = steps(40, each=0.05, total=200, tokens_per_second=16919.0)
    folder = write_run(root, metrics=metrics, gpus=["cpu"], preset=None, commit=None, overrides={})
    return seen(folder)


def unknown_format(root: Path) -> Seen:
    logs = {"rank0.log": "loading\n[17:03] it=12 objective 3.22 (best 3.10)\n"}
    return seen(write_run(root, logs=logs))


def not_a_number(root: Path) -> Seen:
    lost = {"step": 300, "loss": None, "not_finite": "nan", "time": iso(NOW)}
    return seen(write_run(root, metrics=[*steps(300, **SPEED), lost]))


def standing_still(root: Path) -> Seen:
    return seen(write_run(root, metrics=steps(300, **SPEED)), now=NOW + 1500)


def failed(root: Path) -> Seen:
    metrics = steps(300, **SPEED)
    return seen(write_run(root, state="ended", outcome="failed", metrics=metrics))


def eight_gpus(root: Path) -> Seen:
    ids = [f"GPU-{n}" for n in range(8)]
    first = TWO_GPUS.splitlines()[0]
    rows = [first.replace("0, GPU-1", f"{n}, {uuid}", 1) for n, uuid in enumerate(ids)]
    pattern = checkpoints(root)
    logs = {"rank0.log": "a WARNING\n"}
    metrics = steps(900, **SPEED)
    folder = write_run(root, metrics=metrics, checkpoints=pattern, logs=logs, gpus=ids)
    return seen(saving(folder, pattern), "\n".join(rows))


def started_anew(root: Path) -> Seen:
    lost = {"state": "ended", "outcome": "lost", "attempt": {"boot_id": "another"}}
    return seen(write_run(root, metrics=steps(9), **lost))


MOMENTS = {
    each.__name__: each
    for each in (
        *(running, on_cpu, unknown_format, not_a_number),
        *(standing_still, failed, eight_gpus, started_anew),
    )
}


@pytest.mark.parametrize("name", MOMENTS)
def test_the_screen_is_the_one_that_was_looked_at(name: str, tmp_path: Path) -> None:
    """`PYINFRA_GPU_GOLDEN=1` writes them anew: then look at each."""
    text = shown(MOMENTS[name](tmp_path))
    if os.environ.get("PYINFRA_GPU_GOLDEN"):
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 120])
@pytest.mark.parametrize("name", ["running", "eight_gpus", "standing_still"])
def test_the_screen_is_laid_out_for_the_terminal_that_is_there(
    name: str, width: int, tmp_path: Path
) -> None:
    text = shown(MOMENTS[name](tmp_path), width)
    if os.environ.get("PYINFRA_GPU_GOLDEN"):
        (GOLDEN / f"{name}_{width}.txt").write_text(text, encoding="utf-8")
    assert text == (GOLDEN / f"{name}_{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("height", [1, 3, 8, 16])
@pytest.mark.parametrize("name", MOMENTS)
def test_a_low_or_narrow_terminal_shows_what_matters_first(
    name: str, height: int, tmp_path: Path
) -> None:
    """Of eight lines the last was "...", in place of how to leave."""
    it = MOMENTS[name](tmp_path)
    for width in (1, 8, 20, 80):
        shown(it, width, height)
    lines = shown(it, 80, height).splitlines()
    assert re.search(r"train (stop|why|logs)\b", lines[-1])
    assert height < 3 or lines[0].startswith(it.run.name)
    if name == "running" and height == 8:
        assert [line.split()[0] for line in lines[2:5]] == ["loss", "step", "━" * 44]


@pytest.mark.parametrize("name", MOMENTS)
def test_a_line_says_it_too(name: str, tmp_path: Path) -> None:
    text = line(MOMENTS[name](tmp_path))
    assert "\n" not in text
    told = {
        "running": "20:00:00 | step 4209/5960 (70.6%) | loss 3.0753 | 368,417 tokens/s",
        "on_cpu": "step 39/200 (19.5%)",
        "unknown_format": "no step seen; last line: [17:03] it=12 objective 3.22 (best 3.10)",
        "not_a_number": "loss NaN",
        "standing_still": "stalled: no step for 25 min",
        "failed": "failed",
        "eight_gpus": "GPU 7 98 % 28.1/31.8 GiB 71 °C 561 W",
        "started_anew": "lost: the host was started anew",
    }
    assert told[name] in text


HOSTILE = "\x1b]0;owned\x07\x1b[2Jname\u202e[bold red]markup[/]\r\nsecond\x00"


def test_what_others_wrote_reaches_the_terminal_as_text_alone(tmp_path: Path) -> None:
    logs = {"rank0.log": f"WARNING {HOSTILE}", "rank1.log": HOSTILE}
    fields = {"host": HOSTILE, "preset": HOSTILE, "overrides": {HOSTILE: HOSTILE}}
    folder = write_run(tmp_path, logs=logs, run=HOSTILE, **fields)
    it = seen(folder, f"{HOSTILE}, {HOSTILE}")
    file = io.StringIO()
    Console(file=file, width=80, highlight=False, force_terminal=True).print(screen(it))
    for text in (file.getvalue(), line(it)):
        assert not set("\x00\x07\r\u202e") & set(text)
        assert "\x1b]" not in text
        assert "\x1b[2J" not in text
        assert "[bold red]markup[/]" in text


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "[" * 100_000, '{"run": 1e999}', '{"attempts": [3, {}, []]}'],
)
def test_a_record_that_is_none_is_said_or_survived(text: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "run.json").write_text(text, encoding="utf-8")
    run = read_run(folder)
    assert run is None or run.name


def test_lines_that_are_no_metrics_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = json.dumps({"step": 7, "loss": 2.5, "time": iso(NOW)})
    odd = ["", "{", "[1]", '{"loss": 1e999}', '{"step": "x", "loss": true}', "x" * 100_000]
    path.write_text("\n".join([*odd, good, '{"step": 8, "lo']), encoding="utf-8")
    history = History(path)
    history.follow()
    assert (history.last["step"], history.losses.points) == (7, [2.5])
    with path.open("a", encoding="utf-8") as file:
        file.write('ss": 2.25}\n')
    history.follow()
    assert (history.last["step"], history.last["loss"]) == (8, 2.25)
    path.write_text(good + "\n", encoding="utf-8")  # another file in its place
    history.follow()
    assert (history.last["step"], history.lines) == (7, 1)


def test_a_curve_of_any_length_stays_small_and_true() -> None:
    curve = Curve()
    for value in range(100_000):
        curve.add(float(value))
    assert MOST_POINTS / 2 <= len(curve.points) <= MOST_POINTS
    assert curve.points == sorted(curve.points)
    assert curve.points[0] < 500
    assert curve.points[-1] > 99_000


@pytest.mark.parametrize("count", [0, 1, 50, 40_000])
def test_the_losses_of_a_run_of_any_length_are_few_points_in_no_time(
    count: int, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = (json.dumps({"step": n, "loss": float(count - n), **SPEED}) for n in range(count))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    began = time.perf_counter()
    found = sampled_losses(path, 120)
    assert time.perf_counter() - began < 10
    assert len(found) == min(count, 120)
    assert found == sorted(found, reverse=True)
    assert not found or found[0] >= 0.99 * count


def test_the_losses_of_no_file_are_none(tmp_path: Path) -> None:
    assert sampled_losses(tmp_path / "none", 9) == []


def test_gpus_are_asked_again_without_what_the_driver_does_not_know() -> None:
    asked: list[Sequence[str]] = []

    def old_driver(command: Sequence[str]) -> Answer:
        asked.append(command)
        known = ("index", "name", "memory.used", "clocks_throttle_reasons.active")
        names = command[1].removeprefix("--query-gpu=").split(",")
        unknown = next((name for name in names if name not in known), None)
        if unknown:
            return Answer(2, f'Field "{unknown}" is not a valid field to query.\n\n')
        return Answer(0, "0, GPU, 100, 0x40\n")

    gpus = Gpus(["GPU-1"], old_driver)
    (gpu,) = gpus.now()
    assert not isinstance(gpu, str)
    assert (gpu.index, gpu.memory_mib, gpu.throttled) == ("0", 100.0, "too hot")
    assert gpu.used_percent is None


def test_only_the_runs_own_gpus_are_shown() -> None:
    (gpu,) = Gpus(["GPU-2"], answering(TWO_GPUS)).now()
    assert not isinstance(gpu, str)
    assert (gpu.index, gpu.throttled) == ("1", "power limit")
    assert Gpus(["GPU-9"], answering(TWO_GPUS)).now() == "nvidia-smi shows none of GPU-9"


@pytest.mark.parametrize(
    "said", ["No devices were found", "", "a, b", 'Field "x" is not a valid field to query.']
)
def test_gpus_that_cannot_be_told_are_said_to_be(said: str) -> None:
    assert isinstance(Gpus(["GPU-1"], answering(said)).now(), str)


def test_a_machine_without_nvidia_smi_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    reason = "nvidia-smi cannot be run: No such file or directory"
    assert Gpus(["GPU-1"]).now() == reason


def test_the_memory_of_this_machine_is_read(tmp_path: Path) -> None:
    found = memory()
    assert found is not None
    assert 0 < found.used_mib < found.total_mib
    assert memory(tmp_path / "none") is None


@pytest.mark.parametrize("pattern", ["", "relative/*", "/**bad**/\x00"])
def test_no_checkpoint_is_none(pattern: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    assert newest_checkpoint(folder) is None  # without orders
    assert newest_checkpoint(saving(folder, pattern)) is None
    assert newest_checkpoint(saving(folder, f"{tmp_path}/none/*")) is None


def test_a_checkpoint_that_is_being_written_is_not_the_last_one(tmp_path: Path) -> None:
    """It was named, and a resume would have taken the one before."""
    pattern = checkpoints(tmp_path)
    folder = saving(write_run(tmp_path), pattern)
    (tmp_path / "checkpoints" / "step-005000").mkdir()
    assert newest_checkpoint(folder) == ("step-004000", NOW - 300)
    (tmp_path / "checkpoints" / "step-005000" / "all.pt").write_text("x")
    assert (newest_checkpoint(folder) or [None])[0] == "step-005000"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"state": "ended", "outcome": "finished"}, LEFT),
        ({"state": "ended", "outcome": "stopped"}, LEFT),
        ({"state": "ended", "outcome": "failed"}, FAILED),
        ({"attempt": {"boot_id": "another"}, "alive": False}, FAILED),
    ],
)
def test_watching_ends_with_the_run(
    fields: dict[str, Any], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path, metrics=steps(20), **fields)
    assert watch(folder, plain=False, once=False) == code
    assert "step 19/5960" in capsys.readouterr().out


def test_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(tmp_path / "none", plain=True, once=True) == UNREADABLE
    assert "holds no run" in capsys.readouterr().err


def test_ctrl_c_leaves_and_says_how_to_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    assert watch(write_run(tmp_path), plain=True, once=False) == LEFT
    assert "the run goes on: `train watch 20261122-200000-balanced`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        *((0, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (600, "10 min"), (3600, "1 h")),
        *((8100, "2 h 15 min"), (86400 * 3 + 7300, "3 d 2 h")),
    ],
)
def test_durations_are_said_in_two_units(seconds: float, told: str) -> None:
    assert words.duration(seconds) == told


def test_a_sparkline_falls_as_its_values_do() -> None:
    assert words.sparkline([4, 3, 2, 1], 10) == "█▆▃▁"
    assert words.sparkline([1, 1], 10) == "▄▄"
    assert words.sparkline([], 10) == ""


@pytest.mark.parametrize(("term", "drawn"), [("dumb", False), ("unknown", False), ("xterm", True)])
def test_a_terminal_that_draws_nothing_gets_lines(
    term: str, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It got nothing at all."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", term)
    assert watching._is_terminal() is drawn


def test_what_an_earlier_attempt_reached_is_not_told_of_this_one(tmp_path: Path) -> None:
    """A resumed run was at the step that the one before had reached, and stood still there."""
    metrics = [{**each, "time": iso(NOW - 90000)} for each in steps(411)]
    metrics[-1] |= {"loss": None, "not_finite": "nan"}
    folder = write_run(tmp_path, metrics=metrics)
    history = History(folder / "metrics.jsonl")
    history.follow()
    assert history.last["step"] == 410
    history.begin(1)
    assert (history.last["step"], history.has_loss) == (410, True)
    history.begin(2)
    assert (history.last, history.not_finite, history.stalled(NOW)) == ({}, None, None)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**metrics[0], "attempt": 2, "step": 401, "time": iso(NOW)}) + "\n")
    history.follow()
    assert (history.last["step"], history.pace()) == (401, None)
    assert len(history.losses.points) > 400  # the curve goes on
