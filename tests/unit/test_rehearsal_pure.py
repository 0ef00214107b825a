"""The parts of the throwaway hosts that need no hosts: subnets, pages, records, sentences."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

from pyinfra_gpu.cli import main
from pyinfra_gpu_rehearsal import network, requirements
from pyinfra_gpu_rehearsal.commands import last_line, run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.network import choose_subnet
from pyinfra_gpu_rehearsal.state import LabRecord
from pyinfra_gpu_rehearsal.wheelhouse import lay_out_index

# -- the network


@pytest.mark.parametrize(
    ("occupied", "number"),
    [
        ([], 1),
        (["192.0.2.2/24"], 1),
        (["10.77.1.254/24"], 2),
        (["10.77.0.0/22"], 4),
        (["10.77.1.0/24", "10.77.2.5"], 3),
    ],
)
def test_the_first_free_subnet_is_chosen(occupied: list[str], number: int) -> None:
    assert choose_subnet(occupied) == number


def test_a_machine_that_uses_all_of_them_is_refused() -> None:
    with pytest.raises(LabError, match="none of the networks"):
        choose_subnet(["10.0.0.0/8"])


def test_networks_in_use_are_read_from_all_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "default via 192.0.2.1 dev x\n10.77.9.0/24 dev y scope link\nlocal 127.0.0.0/8 dev lo\n"
    said += "10.77.8.1 dev z\nbroadcast 10.77.7.255 dev y table local\n"
    done = subprocess.CompletedProcess([], 0, said)
    monkeypatch.setattr(network, "run", lambda *_, **__: done)
    found = ["10.77.9.0/24", "127.0.0.0/8", "10.77.8.1", "10.77.7.255"]
    assert network.networks_of_machine() == found


# -- records


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"lab_id": "../../x", "subnet": 1, "hosts": {}}',
        '{"lab_id": "0123abcd", "subnet": 1, "another": "", "hosts": {}}',
    ],
)
def test_a_damaged_record_is_named_with_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(LabError, match=r"lab\.json is not a record of throwaway hosts .* remove"):
        LabRecord.load(tmp_path)


# -- what a machine needs


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


# -- wheels


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
    assert [path.name for path in index.parent.iterdir()] == ["simple"]


# -- sentences


def test_a_failed_program_is_told_in_one_sentence() -> None:
    with pytest.raises(LabError, match=r"^trying failed: sh exit 3: the reason$"):
        run(["sh", "-c", "echo noise >&2; echo the reason >&2; exit 3"], purpose="trying")
    with pytest.raises(LabError, match=r"^trying failed: the program no-such-x is not installed$"):
        run(["no-such-x"], purpose="trying")
    with pytest.raises(LabError, match=r"^trying failed: sleep took longer than 0.1 s$"):
        run(["sleep", "5"], purpose="trying", timeout=0.1)
    assert last_line("a\n\n  b  \n\n") == "b"
    assert last_line("") == "it said nothing"


# -- the command line


class NotInstalled(MetaPathFinder):
    """Lets the lab's package be one that is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name.split(".")[0] == "pyinfra_gpu_rehearsal":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_without_the_lab_its_verb_ends_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("pyinfra_gpu_rehearsal")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    assert main(["rehearsal", "up"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("run `pip install 'pyinfra-gpu[rehearsal]'`\n")
    assert printed.err.count("\n") == 1


def test_a_wrong_command_of_the_lab_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearsal", "abacus"]) == 1
    assert "No such command 'abacus'" in capsys.readouterr().err


def test_only_the_command_line_knows_the_lab_and_only_where_it_is_used() -> None:
    folder = Path(__file__).resolve().parents[2] / "pyinfra_gpu"
    knowing = [p for p in folder.rglob("*.py") if "pyinfra_gpu_rehearsal" in p.read_text()]
    assert [path.name for path in knowing] == ["cli.py"]
    code = "import pyinfra_gpu.cli, sys; sys.exit('pyinfra_gpu_rehearsal' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
