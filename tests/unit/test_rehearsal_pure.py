"""The parts of the throwaway hosts that need no hosts: subnets, pages, records, sentences."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pyinfra_gpu.cli import main
from pyinfra_gpu_rehearsal import Lab, LabError, network, requirements
from pyinfra_gpu_rehearsal.commands import cached, last_line, run
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.lab import LabRecord
from pyinfra_gpu_rehearsal.wheelhouse import lay_out_index


def test_the_first_free_subnet_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "default via 192.0.2.1 dev x\n10.77.1.0/24 dev y scope link\nlocal 127.0.0.0/8 dev lo\n"
    said += "10.77.2.1 dev z\nbroadcast 10.77.4.255 dev y table local\n10.1.77.3 dev x\n"
    monkeypatch.setattr(network, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, said))
    assert network.choose_subnet() == 3
    said = "".join(f"10.77.{number}.0/24 dev y\n" for number in range(256))
    with pytest.raises(LabError, match="none of the networks"):
        network.choose_subnet()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"lab_id": "../../x", "subnet": 1, "hosts": {}}',
        '{"lab_id": "0123abcd", "subnet": 1, "another": "", "hosts": {}}',
        '{"lab_id": "0123abcd", "subnet": 1, "hosts": {"../x": ""}}',
    ],
)
def test_a_damaged_record_is_named_with_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(LabError, match=r"lab\.json is not a record of throwaway hosts: remove"):
        Lab(tmp_path).all_hosts()


def test_the_hosts_of_one_lab_run_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyinfra_gpu_rehearsal.lab.available", lambda: None)
    LabRecord.model_validate({"release": "debian13", "hosts": {"gpu1": ""}}).save(tmp_path)
    with pytest.raises(LabError, match="run debian13, not debian12: `down` first"):
        Lab(tmp_path).up(1, release="debian12")


def test_missing_packages_are_named_in_one_line_where_they_cannot_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def which(name: str, path: str | None = None) -> str | None:
        return None if name == "mmdebstrap" else f"/usr/bin/{name}"

    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(requirements.shutil, "which", which)
    line = "sudo apt-get install -y --no-install-recommends mmdebstrap"
    with pytest.raises(LabError, match=f"^throwaway hosts need some packages: run `{line}`$"):
        requirements.ensure_packages(print)
    if sys.platform == "linux":
        assert requirements.available() == "throwaway hosts need root: use sudo"


def test_what_was_made_once_is_kept_and_what_failed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(folder: Path) -> None:
        (folder / "made").touch()
        if failing:
            raise LabError("no room")

    (tmp_path / "pyinfra-gpu").mkdir()
    (tmp_path / "pyinfra-gpu/thing-killed.part").mkdir()
    failing, said = True, list[str]()
    with pytest.raises(LabError, match="no room"):
        cached("thing", ["1"], build, said.append, "making it")
    assert [path.name for path in (tmp_path / "pyinfra-gpu").iterdir()] == ["thing.lock"]
    failing = False
    made = cached("thing", ["1"], build, said.append, "making it")
    assert [path.name for path in made.iterdir()] == ["made"]
    failing = True
    assert cached("thing", ["1"], build, said.append, "making it") == made
    assert said.count("making it (once) ...") == 2
    with pytest.raises(LabError, match="no room"):
        cached("thing", ["2"], build, said.append, "making it")


def wheel_file(folder: Path, name: str, metadata: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/vendored-1.dist-info/METADATA", "Name: other\n")
        archive.writestr("pkg-1.dist-info/METADATA", metadata)
    return path


def test_an_index_is_laid_out_by_links_and_replaced_as_a_whole(tmp_path: Path) -> None:
    name = "A.b-1.0+cpu-py3-none-any.whl"
    wheel = wheel_file(tmp_path, name, "Name: A.b\r\n\r\nText")
    index = tmp_path / "www/simple"
    lay_out_index(tmp_path, index)
    (index / "stale").mkdir()
    lay_out_index(tmp_path, index)
    assert sorted(path.name for path in index.iterdir()) == ["a-b", "index.html"]
    assert 'href="a-b/"' in (index / "index.html").read_text()
    assert (index / "a-b" / name).resolve() == wheel
    metadata = (index / f"a-b/{name}.metadata").read_bytes()
    page = (index / "a-b/index.html").read_text()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert f'href="A.b-1.0%2Bcpu-py3-none-any.whl#sha256={digest}"' in page
    assert f'data-core-metadata="sha256={hashlib.sha256(metadata).hexdigest()}"' in page


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["sh", "-c", "echo noise >&2; echo why >&2; exit 3"], "trying failed: sh exit 3: why"),
        (["no-such-x"], "trying failed: the program no-such-x is not installed"),
        (["sleep", "5"], r"trying failed: sleep took longer than 0\.5 s"),
    ],
)
def test_a_failed_program_is_told_in_one_sentence(command: list[str], sentence: str) -> None:
    with pytest.raises(LabError, match=f"^{sentence}$"):
        run(command, purpose="trying", timeout=0.5)
    assert (last_line("a\n\n  b  \n\n"), last_line("")) == ("b", "it said nothing")


def test_the_commit_of_a_served_folder_depends_on_its_files_alone(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder / "one").mkdir(parents=True)
        (tmp_path / folder / "one/train.py").write_text("print(1)\n")
        (tmp_path / folder / "one/train.pyc").write_text(folder)
    first = publish(tmp_path / "here/one", tmp_path / "git/one.git")
    assert publish(tmp_path / "there/one", tmp_path / "git/again.git") == first
    listed = ["git", f"--git-dir={tmp_path}/git/one.git", "ls-tree", "-r", "--name-only", "main"]
    assert subprocess.run(listed, capture_output=True, text=True).stdout == "train.py\n"


# -- the command line


def test_a_wrong_command_of_the_lab_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearsal", "abacus"]) == 1
    assert "No such command 'abacus'" in capsys.readouterr().err


def test_only_the_command_line_knows_the_lab_and_only_where_it_is_used() -> None:
    folder = Path(__file__).resolve().parents[2] / "pyinfra_gpu"
    knowing = [p for p in folder.rglob("*.py") if "pyinfra_gpu_rehearsal" in p.read_text()]
    assert [path.name for path in knowing] == ["cli.py"]
    code = "import pyinfra_gpu.cli, sys; sys.exit('pyinfra_gpu_rehearsal' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
