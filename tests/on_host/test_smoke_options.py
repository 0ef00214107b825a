"""Wrong command lines: one sentence, exit code 2, nothing started, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyinfra_gpu.on_host.smoke import options


def _arguments(directory: Path, **changes: str | None) -> list[str]:
    given: dict[str, str | None] = {
        "mode": "rehearsal-cpu",
        "ranks": "2",
        "deadline": "180",
        "allreduce-mib": "64",
        "fingerprint": "c0ffee",
        "host": "box",
        "output": str(directory / "verdict.json"),
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return [text for name, value in given.items() if value for text in (f"--{name}", value)]


def test_a_right_command_line_is_taken(tmp_path: Path) -> None:
    asked = options.parse(_arguments(tmp_path))
    assert asked == options.Options(
        mode="rehearsal-cpu",
        ranks=2,
        gpus=None,
        deadline=180,
        allreduce_mib=64,
        fingerprint="c0ffee",
        host="box",
        output=tmp_path / "verdict.json",
    )


def test_ranks_deadline_and_size_have_defaults(tmp_path: Path) -> None:
    asked = options.parse(_arguments(tmp_path, ranks=None, deadline=None, allreduce_mib=None))
    assert isinstance(asked, options.Options)
    assert (asked.ranks, asked.deadline, asked.allreduce_mib) == (None, 180, 64)


@pytest.mark.parametrize("mode", ["gpu", "rehearsal-1gpu"])
def test_on_gpus_the_largest_all_reduce_is_larger(mode: str, tmp_path: Path) -> None:
    asked = options.parse(_arguments(tmp_path, mode=mode, allreduce_mib=None))
    assert isinstance(asked, options.Options)
    assert asked.allreduce_mib == 256


def test_by_hand_a_mode_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(options.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    asked = options.parse(["--mode", "rehearsal-cpu"])
    assert isinstance(asked, options.Options)
    assert asked.output == tmp_path / "verdict.json"
    assert asked.fingerprint is None
    assert asked.host


def test_help_tells_how_to_run_it_by_hand_and_what_the_exit_codes_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        options.parse(["--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert "--mode gpu" in shown
    assert all(f"  {code} " in shown for code in (0, 1, 2, 3))
    assert max(map(len, shown.splitlines())) <= 100


REFUSALS: dict[str, tuple[dict[str, str | None], str]] = {
    "no GPUs": ({"gpus": "0"}, "'0' is not a whole number 1 to 16"),
    "a directory that takes no files": (
        {"output": "/proc/self/v.json"},
        "the directory /proc/self is not writable for this user",
    ),
    "no such mode": ({"mode": "cpu"}, "invalid choice: 'cpu'"),
    "no mode": ({"mode": None}, "--mode"),
    "one rank": ({"ranks": "1"}, "1 rank is possible only in a step across hosts"),
    "too many ranks": ({"ranks": "17"}, "'17' is not a whole number 1 to 16"),
    "half a rank": ({"ranks": "2.5"}, "'2.5' is not a whole number"),
    "a short deadline": ({"deadline": "9"}, "'9' is not a whole number 10 to 3600"),
    "a negative deadline": ({"deadline": "-5"}, "'-5' is not a whole number 10 to 3600"),
    "a size between powers": ({"allreduce_mib": "48"}, "'48' is not a power of two 1 to 1024"),
    "no size": ({"allreduce_mib": "0"}, "'0' is not a whole number 1 to 1024"),
    "a fingerprint in words": ({"fingerprint": "new"}, "'new' is not lower-case hexadecimal"),
    "a relative path": ({"output": "verdict.json"}, "'verdict.json' is not an absolute path"),
    "no such directory": (
        {"output": "/nowhere/v.json"},
        "the directory /nowhere does not exist, create it first",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_in_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, words = REFUSALS[name]
    with pytest.raises(SystemExit) as left:
        options.parse(_arguments(tmp_path, **changes))
    error = capsys.readouterr().err
    assert left.value.code == 2
    assert words in error
    assert error.startswith("smoke test: ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_another_system_than_linux_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options.sys, "platform", "darwin")
    with pytest.raises(SystemExit):
        options.parse(_arguments(tmp_path))
    assert "needs Linux" in capsys.readouterr().err


def test_a_workers_command_line_is_told_by_its_first_word() -> None:
    arguments = ["--worker", "/run", "--launcher-pid", "7", "--mode", "gpu", "--deadline", "60"]
    arguments += ["--allreduce-mib", "4", "--compiled", "--measure", "store,gpu.pairs"]
    measured = ("store", "gpu.pairs")
    asked = options.parse(arguments)
    assert asked == options.WorkerOptions(Path("/run"), 7, "gpu", 60, 4, True, measured)


def test_so_are_those_of_the_processes_that_try_one_device() -> None:
    arguments = ["--single", "/run", "--launcher-pid", "7", "--mode", "gpu", "--devices", "2"]
    assert options.parse(arguments) == options.SingleOptions(Path("/run"), 7, "gpu", 2, None)
    asked = options.parse([*arguments, "--device", "1"])
    assert asked == options.SingleOptions(Path("/run"), 7, "gpu", 2, 1)
    precision = options.parse(["--gpu-precision", "mxfp8", "--device", "1"])
    assert precision == options.PrecisionOptions("mxfp8", 1)
