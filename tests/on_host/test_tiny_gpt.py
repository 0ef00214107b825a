"""The example trainer really trains, alone and as two processes, and saves what it learnt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyinfra_gpu.on_host.smoke import environment
from pyinfra_gpu.on_host.smoke.options import REHEARSAL_CPU
from tests.on_host import smoke_runs

_EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-gpt"


@dataclass(frozen=True)
class Trainer:
    """A copy of the trainer, and a Python that has torch to run it."""

    python: str
    folder: Path

    def run(self, *words: str) -> str:
        """Run a program of the folder, or a module, and return what it printed."""
        variables = environment.clean(os.environ, REHEARSAL_CPU)
        done = subprocess.run(
            [self.python, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=variables,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def run_text(self, program: str) -> str:
        """Run a text of Python beside the trainer."""
        (self.folder / "program.py").write_text(program)
        return self.run("program.py")


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    python = smoke_runs.torch_python("numpy")
    if python is None:
        pytest.skip("no numpy beside torch; set PYINFRA_GPU_TORCH_PYTHON to a Python with both")
    shutil.copytree(_EXAMPLE, tmp_path / "tiny-gpt")
    return Trainer(python, tmp_path / "tiny-gpt")


def _losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^step +\d+/\d+  loss (\d+\.\d+) ", output, re.M)]


@pytest.mark.torch
def test_two_processes_train_one_model_and_save_it(trainer: Trainer) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["train.py", "--steps", "30", "--batch-size", "8", "--device", "cpu", "--sample", "20"]
    output = trainer.run(*torchrun, "--local-addr", "127.0.0.1", *script)
    losses = _losses(output)
    assert "2 process(es) on cpu" in output
    assert len(losses) == 4  # steps 1, 10, 20, 30, printed by one process only
    assert 3.5 < losses[0] < 4.2  # the logarithm of the alphabet's size
    assert losses[-1] < losses[0] - 0.5
    names = {path.name for path in trainer.folder.iterdir()}
    assert "tiny-gpt.pt" in names
    assert "tiny-gpt.pt.tmp" not in names
    load = (
        "import torch; from model import Config, TinyGpt\n"
        "saved = torch.load('tiny-gpt.pt', weights_only=True)\n"
        "model = TinyGpt(Config(**saved['config'])); model.load_state_dict(saved['model'])\n"
        "print(len(saved['characters']) == saved['config']['vocabulary'])"
    )
    assert trainer.run_text(load).strip() == "True"


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
def test_a_cut_run_goes_on_as_if_it_never_was_cut(trainer: Trainer) -> None:
    tried = textwrap.indent(_CUT_AND_RESUMED, "    ")
    code = f"try:\n{tried}\nexcept SystemExit as error:\n    print(error)"
    output = trainer.run_text(code)
    _, uncut, cut, resumed, incomplete = output.split("run\n")
    assert _losses(uncut)[-1] == _losses(resumed)[-1]
    assert _losses(cut) == _losses(uncut)[:2] + _losses(cut)[-1:]
    assert "resumed from c/step-000006 at step 6" in resumed
    assert "equal: True" in resumed
    assert "c/step-000018 is not a complete checkpoint" in incomplete
