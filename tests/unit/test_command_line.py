"""Mistakes are found before a host is contacted, each in one sentence, with exit code 1."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyinfra.api.state import State
from pyinfra.context import ctx_state
from pyinfra_cli.util import PYTHON_CODES

from pyinfra_gpu.engine import command_line

PROJECT = Path(__file__).resolve().parents[2]
LAB = "inventories/lab.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project folder, and pyinfra's own set-up as it is when config.py is executed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventories").mkdir()
    PYTHON_CODES.clear()  # pyinfra keeps compiled files by their relative name
    with ctx_state.use(State()):
        yield tmp_path


def sentences(capsys: pytest.CaptureFixture[str], text: str | None, *arguments: str) -> list[str]:
    """Run the check as pyinfra's config.py does, with this inventory; return what it says."""
    if text is not None:
        Path(LAB).write_text(text)
    try:
        command_line.check([*arguments, "deploy.py"])
    except SystemExit as stop:
        assert stop.code == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return [line for line in said.splitlines() if "pyinfra-gpu" in line]


# What can be wrong in data is in test_spec_wrong_data.py.
WRONG_DATA: list[tuple[str, tuple[str, ...]]] = [
    ('"stak": "r580-cu130"', ("stak", "stack")),
    ('"gpu_count": 99', ("gpu_count", "99")),
    ('"gpu_model": "RTX 5090", "driver_modules": "proprietary"', ("driver_modules", "open")),
    ('"driver_repository_url": "https://me:hunter2@example.org/"', ("auth.conf.d",)),
    ('"pytorch_source": "source"', ("pytorch_source", "set pytorch_git_url")),
    ('"environment_variables": _own', ("environment_variables",)),
]
# Each was passed over with its whole group, or ended a run of all hosts in a traceback.
WRONG_ENTRIES: list[tuple[str, tuple[str, ...]]] = [
    ('gpu = ["ws1", ["ws2", {"p": "hunter2"}]]', ("group gpu, entry 2,", "(list, data)")),
    ('gpu = (name for name in ["ws1"])', ("group gpu has to be a list",)),
    ('gpu = {"ws1", "ws2"}', ("group gpu has to be a list",)),
    ('gpu = ("ws1", "ws2")', ("group gpu has to be a list",)),
    ('gpu = [""]', ("group gpu, entry 1,", "has to be a list of a name or")),
    ('gpu = [("ws1",)]', ("group gpu, entry 1,",)),
    ('gpu = [("ws1", None)]', ("group gpu, entry 1,",)),
    ("gpu = [4]", ("group gpu, entry 1,",)),
    (
        'gpu = [("ws1", {"prefix": "/a"})]\nold = [("ws1", {"prefix": "/b"})]',
        ("group old", "ws1 is declared twice, and prefix differs"),
    ),
    ('gpu = ["ws 1"]', ("host 'ws 1'",)),
    ('gpu = ["alice@ws1"]', ("host 'alice@ws1'", "a user is declared as ssh_user")),
    ('gpu = ["ws2:2222"]', ("host 'ws2:2222'", "a port as ssh_port")),
    ('gpu = [("ws1", {"ssh_hostname": "a b"})]', ("host 'ws1': 'a b' is no address",)),
    ('gpu = [("ws1", {"ssh_port": "22"})]', ("ssh_port = '22' has the wrong type",)),
    ('gpu = [("ws1", {}) ("ws2", {})]', ("lab.py", "is not callable")),
    ('gpu = ["ws1"', ("lab.py", "line 1", "never closed")),
    ("gpu = [wsl]", ("lab.py", "NameError", "wsl")),
    ("import nosuchmodule", ("lab.py", "nosuchmodule")),
    *((f'_own = {{}}\n_own["a"] = _own\ngpu = [("ws1", {{{data}}})]', ("ws1", *words))
      for data, words in WRONG_DATA),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG_ENTRIES)
def test_what_is_wrong_in_an_inventory_is_one_sentence(
    text: str, words: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (said,) = sentences(capsys, f'{text}\ncpu = ["good"]', "--dry", LAB)
    assert [word for word in words if word not in said] == []
    assert "hunter2" not in said
    assert "codec" not in said


ONE = 'gpu = ["ws1"]'
WRONG_COMMANDS: list[tuple[str | None, list[str], tuple[str, ...]]] = [
    (ONE, ["inventories/lap.py"], ("lap.py", "there is: inventories/lab.py")),
    (ONE, ["deploy.py", LAB], ("deploy.py is no inventory", "pyinfra INVENTORY deploy.py")),
    (None, ["nofile.py"], ("; there is: none",)),
    ("gpu = []", [LAB], ("holds no host",)),
    ("", [LAB], ("holds no host",)),
    ("", ["inventories"], ("inventories is not an inventory",)),
    (ONE, ["--limit", "ws2", LAB], ("--limit", "ws2", "ws1")),
    (ONE, ["--exclude", "ws*", LAB], ("--exclude", "ws1")),
    (ONE, ["-y", "--dry", LAB], ("leave out -y",)),
    (ONE, ["--data", "smoke", LAB], ("KEY=VALUE",)),
    (ONE, ["--data", "smok=always", LAB], ("smok", "smoke")),
    (ONE, [LAB], ("add -y or --dry",)),  # there is no terminal
]


@pytest.mark.parametrize(("text", "arguments", "words"), WRONG_COMMANDS)
def test_a_wrong_command_line_is_one_sentence(
    text: str | None,
    arguments: list[str],
    words: tuple[str, ...],
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("config.py", "deploy.py"):  # which are no inventory that was meant
        (project / name).write_text("")
    (said,) = sentences(capsys, text, *arguments)
    assert [word for word in words if word not in said] == []


RIGHT = """
domain = "lab.example"
common = {"environment_variables": {"A": "x"}}
ports = {"ssh": 22}
_names = {"ws1", "ws2"}
empty = {}
gpu = [(f"{each}.{domain}", {**common, "gpu_model": "RTX 5090"}) for each in sorted(_names)]
old = (["ws1.lab.example"], {"smoke": "skip"})
cpu = ["ws1.lab.example.", "10.0.0.1", "fe80::1%eth0", "my_alias", "bücher", "@local"]
"""


@pytest.mark.parametrize("arguments", [["--dry"], ["-y", "--limit", "gpu"]])
def test_what_is_right_passes_quietly(
    arguments: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(LAB).write_text(RIGHT)
    command_line.check([*arguments, LAB, "deploy.py"])
    command_line.check(["--version"])
    assert capsys.readouterr().err == ""


def test_each_wrong_host_gets_its_own_sentence(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "group_data").mkdir()
    (project / "group_data" / "old.py").write_text('stack = "r999"\n')
    text = 'gpu = [("ws1", {"stak": 1}), "ws2", ("ws3", {"smoke_ranks": 1})]\nold = ["ws4"]'
    said = sentences(capsys, text, LAB)
    assert [host for host in ("ws1", "ws2", "ws3", "ws4") if host in " ".join(said)] == [
        *("ws1", "ws3", "ws4")
    ]
    assert len(said) == 3
    assert "r999" in said[2]


def test_pyinfra_itself_exits_1_and_contacts_no_host(tmp_path: Path) -> None:
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        port = str(listening.getsockname()[1])
        cases: list[tuple[Path, list[str], str]] = [
            (PROJECT, ["--port", port, "--data", "smoke_ranks=1", "127.0.0.1", "deploy.py"],
             "smoke_ranks"),
            (PROJECT, ["inventories/lob.py", "deploy.py"], LAB),
            (tmp_path, ["@local", str(PROJECT / "deploy.py")], f"run pyinfra in {PROJECT}"),
        ]  # fmt: skip
        for folder, arguments, words in cases:
            done = subprocess.run(
                [pyinfra, "-y", *arguments],
                cwd=folder, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert done.returncode == 1
            assert words in done.stderr
            assert "Traceback" not in done.stderr
        with pytest.raises(TimeoutError):
            listening.accept()
