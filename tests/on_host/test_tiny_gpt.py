"""The example trainer really trains, alone and as two processes, and saves what it learnt."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

_EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-gpt"


@functools.cache
def _torch_python() -> str | None:
    for python in (os.environ.get("PYINFRA_GPU_TORCH_PYTHON"), sys.executable):
        probe = "import torch, numpy"
        if python and subprocess.run([python, "-c", probe], capture_output=True).returncode == 0:
            return python
    return None


@pytest.fixture
def trainer(tmp_path: Path) -> list[str]:
    """Return the start of a command that runs a copy of the trainer."""
    python = _torch_python()
    if python is None:
        pytest.skip("no torch and numpy here; set PYINFRA_GPU_TORCH_PYTHON to a Python with both")
    shutil.copytree(_EXAMPLE, tmp_path / "tiny-gpt")
    return [python]


def _run(command: list[str], directory: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    run = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def _losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^step +\d+/\d+  loss (\d+\.\d+) ", output, re.M)]


@pytest.mark.torch
def test_two_processes_train_one_model(trainer: list[str], tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["train.py", "--steps", "30", "--batch-size", "8", "--device", "cpu"]
    output = _run(
        [*trainer, *torchrun, "--local-addr", "127.0.0.1", *script], tmp_path / "tiny-gpt"
    )
    losses = _losses(output)
    assert "2 process(es) on cpu" in output
    assert len(losses) == 4  # steps 1, 10, 20, 30, printed by one process only
    assert 3.5 < losses[0] < 4.2  # the logarithm of the alphabet's size
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.torch
def test_one_process_trains_saves_and_writes(trainer: list[str], tmp_path: Path) -> None:
    directory = tmp_path / "tiny-gpt"
    output = _run([*trainer, "train.py", "--steps", "2", "--sample", "20"], directory)
    assert len(_losses(output)) == 2
    names = {path.name for path in directory.iterdir()}
    assert "tiny-gpt.pt" in names
    assert "tiny-gpt.pt.tmp" not in names
    load = (
        "import torch; from model import Config, TinyGpt\n"
        "saved = torch.load('tiny-gpt.pt', weights_only=True)\n"
        "model = TinyGpt(Config(**saved['config'])); model.load_state_dict(saved['model'])\n"
        "print(len(saved['characters']) == saved['config']['vocabulary'])"
    )
    assert _run([*trainer, "-c", load], directory).strip() == "True"


_CUT_AND_RESUMED = """
import shutil, sys, torch, train
common = ["train.py", "--device", "cpu", "--batch-size", "2"]
def run(*words):
    print("run", flush=True)
    sys.argv = [*common, *words]
    train.main()
run("--steps", "20", "--checkpoint", "uncut.pt")
run("--steps", "14", "--checkpoint", "cut.pt", "--checkpoints", "c", "--save-every", "6")
open("c/step-000012/rank0.pt", "r+b").truncate(9)  # a power cut in the middle of the last one
(train.Path("c") / "step-000018").mkdir()
run("--steps", "20", "--checkpoint", "cut.pt", "--checkpoints", "c", "--resume", "auto")
one, other = (torch.load(name)["model"] for name in ("uncut.pt", "cut.pt"))
print("equal:", all(torch.equal(one[name], other[name]) for name in one))
run("--steps", "20", "--resume", "c/step-000018")
"""


@pytest.mark.torch
def test_a_cut_run_goes_on_as_if_it_never_was_cut(trainer: list[str], tmp_path: Path) -> None:
    tried = textwrap.indent(_CUT_AND_RESUMED, "    ")
    code = f"try:\n{tried}\nexcept SystemExit as error:\n    print(error)"
    output = _run([*trainer, "-c", code], tmp_path / "tiny-gpt")
    _, uncut, cut, resumed, incomplete = output.split("run\n")
    assert _losses(uncut)[-1] == _losses(resumed)[-1]
    assert _losses(cut) == _losses(uncut)[:2] + _losses(cut)[-1:]
    assert "resumed from c/step-000006 at step 6" in resumed
    assert "equal: True" in resumed
    assert "c/step-000018 is not a complete checkpoint" in incomplete


def test_the_trainer_needs_torch_and_numpy_and_nothing_else() -> None:
    project = tomllib.loads((_EXAMPLE / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["torch>=2.9", "numpy"]
    assert project["license"] == "MIT"
    assert "MIT License" in (_EXAMPLE / "LICENSE").read_text()
