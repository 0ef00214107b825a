"""`remove`: what is ours goes, what is somebody's stays and is named; never under a run."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu import remove
from pyinfra_gpu.cli import main
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import resolve
from pyinfra_gpu.spec.system_files import HEADER
from pyinfra_gpu.stages.layout import findings as layout

PROJECT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).parent / "fixtures" / "probe" / "ubuntu2404-2x-rtx5090.txt"
TRAINING = {"training_repo": "file:///srv/x", "training_commit": "0" * 40}
OURS = (
    *("tools/bin/uv", "venv/bin/python", "venv.new/x", "bin/train", "env/training.env", ".lock"),
    *("state/verdict.json", "smoke/stamp.json", "cache/a/b"),
)
KEPT = {
    "env/training.env.before-pyinfra-gpu": "set aside by a deploy",
    "venv.before-pyinfra-gpu": "set aside by a deploy",
    "training/training": "a training checkout",
    "state/runs": "runs and checkpoints",
}
STAYS = (
    "env/training.env.before-pyinfra-gpu",
    "venv.before-pyinfra-gpu/bin/python",
    "training/training/train.py",
    "state/runs/r1/checkpoints/step-4000/model.pt",
    "notes.txt",  # which no deploy makes
)


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir()}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The prefix of this machine as a deploy without root left it, and of which nothing runs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(PROJECT)
    prefix = tmp_path / "gpu"
    for name in (*OURS, *STAYS):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text("x")
    (prefix / "venv/lib64").symlink_to(tmp_path)  # never followed
    data = {"stack": "cpu-torch2.13", "prefix": str(prefix), "gpu_count": 0, "privilege": "none"}
    (tmp_path / "lab.py").write_text(f"gpu = [('@local', {data})]\n")
    sees(monkeypatch)
    return prefix


def sees(monkeypatch: pytest.MonkeyPatch, runs: Any = (), build: Any = None) -> None:
    record = parse(PROBE.read_text().splitlines())
    parts = {
        "launcher": replace(record.launcher, runs=runs),
        "build": replace(record.build, state=build),
    }
    changed: Record = replace(record, **parts)
    monkeypatch.setattr(remove, "answer", lambda *words, **more: changed)


def command(host: Path, *words: str) -> int:
    return main(["remove", str(host.parent / "lab.py"), *words])


def test_what_is_ours_goes_and_the_rest_is_named(
    host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(host.parent)
    monkeypatch.setattr("click.confirm", lambda *words, **more: False)
    assert command(host) == 1  # nobody said yes
    plan = " ".join(capsys.readouterr().out.split())
    assert files(host.parent) == before
    assert "@local would be removed" in plan
    assert "The driver, the CUDA toolkit and other packages stay" in plan
    for path, why in KEPT.items():
        assert f"keep {host}/{path} ({why})" in plan
    assert command(host, "--yes") == 0
    assert files(host) == set(STAYS)
    assert (host.parent / "lab.py").exists()
    capsys.readouterr()
    assert command(host, "--yes") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "@local  nothing to remove"
    assert {line.split()[0] for line in shown[1:]} == {"keep"}


BUILD = BuildState(fingerprint="0" * 64, phase="compile", running=True)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"runs": ("r1",)}, "run r1 at work: wait, or stop it"),
        ({"runs": Unknown("no /proc")}, "cannot tell whether a run is at work: no /proc"),
        ({"build": BUILD}, "torch is being built: wait"),
    ],
)
def test_nothing_is_removed_while_somebody_works_there(
    seen: dict[str, Any],
    words: str,
    host: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sees(monkeypatch, **seen)
    lab = host.parent / "lab.py"
    declared = f"**{TRAINING}, 'gpu_count'"
    lab.write_text(lab.read_text().replace("'gpu_count'", declared))
    assert command(host, "--yes") == 1
    assert words in " ".join(capsys.readouterr().out.split())
    assert {*OURS, *STAYS} <= files(host)


def test_a_file_outside_the_prefix_is_ours_by_its_header(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    texts = {"ours.list": f"{HEADER}deb x\n", "theirs.list": "deb x\n", "aside": f"{HEADER}x\n"}
    for name, text in texts.items():
        (etc / name).write_text(text)
    (etc / "link.list").symlink_to(etc / "aside")
    paths = [str(etc / name) for name in ("ours.list", "theirs.list", "link.list", "none.list")]
    words = ("1", "", str(tmp_path / "gpu"), HEADER.strip(), *paths)
    text = program("remove/remove.sh", *words, uses=("files/root_only.sh",))
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert files(etc) == {"theirs.list", "link.list", "aside"}
    assert done.stdout.splitlines() == [
        f"remove {etc}/ours.list",
        *(
            f"keep {etc}/{each} (not written by pyinfra-gpu)"
            for each in ("theirs.list", "link.list")
        ),
    ]


def test_all_that_stages_declare_below_the_prefix_is_known() -> None:
    spec = resolve({"gpu_model": "RTX 5090", "gpu_count": 2, **TRAINING}, "ws1")
    known = remove.ours(spec)
    assert {*layout.roots(spec)[1:], *layout.owners(spec), spec.paths.venv, spec.paths.lock} <= {
        *known
    }
    assert "/etc/apt/preferences.d/00pyinfra-gpu-nvidia" in known
    assert spec.paths.prefix not in known
