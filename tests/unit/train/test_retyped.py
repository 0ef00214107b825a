"""A command that is told to somebody has all that was typed before, but for what it changes."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import pytest
from train.run_directory import write_run

from pyinfra_gpu.on_host.train import options, presets
from pyinfra_gpu.on_host.train.advice import smaller
from pyinfra_gpu.on_host.train.calling import VARIABLE, Caller, said
from pyinfra_gpu.on_host.train.checks import Asked
from pyinfra_gpu.on_host.train.commands import asking
from pyinfra_gpu.on_host.train.errors import TrainError
from pyinfra_gpu.on_host.train.record import Run, read_run
from pyinfra_gpu.on_host.train.retyped import of_options, of_run

EVERYTHING = (
    "start tiny --set name='a  b' --set steps=50 --gpus 0,1 --queue --unproven --retries 3"
    " -- --sample 3 --note='it is so'"
)
LOOKS = ("help", "dry", "like", "preset", "hosts")
"""Of `start`: what is told in another way, or only looks."""


def typed(line: str) -> argparse.Namespace:
    return options.parse(shlex.split(line))


def test_a_command_line_is_repeated_whole() -> None:
    asked = typed(EVERYTHING)
    again = of_options(asked, "tiny").here().removeprefix("train ")
    assert vars(typed(again)) == vars(asked)


def test_no_option_of_a_start_is_left_out_of_what_repeats_it() -> None:
    """An option that is new has to be here as well."""
    asked = typed("start tiny")
    for name in ({*vars(asked)} - {*LOOKS, "command"}) - {"set", "words"}:
        value: object = {"gpus": "0,1", "retries": 3}.get(name, True)
        given = argparse.Namespace(**{**vars(asked), name: value})
        assert (
            getattr(typed(of_options(given, "tiny").here().removeprefix("train ")), name) == value
        )


def failed(tmp_path: Path, **request: object) -> Run:
    command = ["torchrun", "train.py", "--batch-size=16", "--micro-batch-size", "8"]
    more = {"command": command, "overrides": {"steps": "50", "to": "/nfs/x"}}
    folder = write_run(tmp_path, state="ended", outcome="failed", unproven=True, **more)
    preset = {"arguments": {"steps": 5, "to": "", "batch-size": 16}}
    (folder / "request.json").write_text(json.dumps({"preset": preset, **request}))
    run = read_run(folder)
    assert run is not None
    return run


def test_advice_keeps_what_stood_behind_the_dashes_and_how_it_was_started(tmp_path: Path) -> None:
    """`train start tiny --set steps=50 -- --sample 3` was told to go on without `--sample 3`."""
    run = failed(tmp_path, words=["--sample", "3 4"], queue=True, retries=2)
    halved, other = smaller(run, "small")
    kept = "--queue --unproven --retries 2 -- --sample '3 4'`"
    assert (
        f"`train start balanced --set steps=50 --set to=/nfs/x --set batch-size=8 {kept}" in halved
    )
    assert f"`train start small --set to=/nfs/x {kept}" in other


@pytest.mark.parametrize(
    ("words", "name", "told"),
    [
        (["--batch-size", "16", "-v"], "batch-size", "-- --batch-size 8 -v"),
        (["--batch-size=16", "-v"], "batch-size", "-- --batch-size=8 -v"),
        (["-v"], "micro-batch-size", "-- -v --micro-batch-size=8"),  # which --set does not take
        ([], "ranks", "--set ranks=8"),
    ],
)
def test_a_value_is_changed_where_it_was_given(
    words: list[str], name: str, told: str, tmp_path: Path
) -> None:
    run = failed(tmp_path, words=words)
    assert told in of_run(run).changed(name, 8).here()


def test_a_smaller_preset_is_not_given_the_values_of_the_larger_one(tmp_path: Path) -> None:
    words = ["--seq-len", "4096", "--sample", "3", "--batch-size=64", "last"]
    *_, other = smaller(failed(tmp_path, words=words), "small")
    assert "`train start small --set to=/nfs/x --unproven -- --sample 3 last`" in other


def test_a_folder_that_is_shared_is_asked_for_beside_all_that_was_typed() -> None:
    """`start --across gpu -- tiny --set steps=400` was told to be typed without its steps."""
    own: dict[str, presets.Value] = {
        "steps": 5,
        "checkpoints": "{run}/checkpoints",
        "samples": "{run}/samples",
    }
    preset = presets.Preset(name="tiny", file="train.py", arguments=own)
    wanted = Asked(preset=preset, devices=("cpu",), ranks=1, hosts=2)
    given = of_options(typed("start tiny --set steps=400 --unproven -- --sample 3"), "tiny")
    with pytest.raises(TrainError) as caught:
        asking.refuse_across(wanted, given)
    assert (
        "type `pyinfra-gpu train INVENTORY start --across GROUP -- tiny --set steps=400 --set"
        " checkpoints=FOLDER --set samples=FOLDER --unproven -- --sample 3`"
    ) in str(caught.value)


def test_what_the_controller_is_told_has_each_word_as_it_was_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two blanks in a value became one."""
    monkeypatch.setenv(VARIABLE, Caller(inventory="lab.py", chosen=("--limit", "ws1")).as_text())
    command = of_options(typed(EVERYTHING), "tiny").here()
    told = said(f"give `{command}`").strip("`").removeprefix("give `")
    assert shlex.split(told)[:7] == [
        "pyinfra-gpu",
        "train",
        "lab.py",
        "start",
        "--limit",
        "ws1",
        "--",
    ]
    assert shlex.split(told)[7:] == shlex.split(command)[2:]
