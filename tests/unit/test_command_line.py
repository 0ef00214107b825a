"""Mistakes are found before a host is contacted, each in one sentence, with exit code 1."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pyinfra.api.state import State
from pyinfra.context import ctx_state
from pyinfra_cli.util import PYTHON_CODES

from pyinfra_gpu.engine import command_line

PROJECT = Path(__file__).resolve().parents[2]

# (host data, words the sentence must have); what can be wrong is in test_spec_wrong_data.py
WRONG_DATA: list[tuple[str, tuple[str, ...]]] = [
    ('"stak": "r580-cu130"', ("stak", "stack")),
    ('"gpu_count": 99', ("gpu_count", "99")),
    ('"gpu_model": "RTX 5090", "driver_modules": "proprietary"', ("driver_modules", "open")),
    ('"driver_repository_url": "https://me:secret@example.org/"', ("auth.conf.d",)),
    ('"pytorch_source": "source"', ("pytorch_source", "set pytorch_git_url")),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project folder, and pyinfra's own set-up as it is when config.py is executed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventories").mkdir()
    PYTHON_CODES.clear()  # pyinfra keeps compiled files by their relative name
    with ctx_state.use(State()):
        yield tmp_path


def write(project: Path, text: str, name: str = "lab") -> str:
    path = project / "inventories" / f"{name}.py"
    path.write_text(text)
    return f"inventories/{name}.py"


def one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """Run the check as pyinfra's config.py does; return the one line it must print."""
    with pytest.raises(SystemExit) as stop:
        command_line.check(arguments)
    assert stop.value.code == 1
    ours = [line for line in capsys.readouterr().err.splitlines() if "pyinfra-gpu" in line]
    assert len(ours) == 1
    return ours[0]


@pytest.mark.parametrize(("data", "words"), WRONG_DATA, ids=[data for data, _ in WRONG_DATA])
def test_wrong_host_data_is_one_sentence_that_names_key_value_and_host(
    data: str, words: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = write(project, f'gpu = [("ws1", {{{data}}})]\n')
    sentence = one_sentence(capsys, [inventory, "deploy.py"])
    for word in ("ws1", *words):
        assert word in sentence
    assert "secret" not in sentence
    assert "Traceback" not in sentence


WRONG_COMMANDS: list[tuple[str, list[str], tuple[str, ...]]] = [
    ('gpu = ["ws1"]', ["inventories/lap.py", "deploy.py"], ("lap.py", "inventories/lab.py")),
    ("gpu = []", ["inventories/lab.py", "deploy.py"], ("holds no host",)),
    ("", ["inventories/lab.py", "deploy.py"], ("holds no host",)),
    (
        'gpu = ["ws1"]',
        ["--limit", "ws2", "inventories/lab.py", "deploy.py"],
        ("--limit", "ws2", "ws1"),
    ),
    (
        'gpu = ["ws1"]',
        ["--exclude", "ws*", "inventories/lab.py", "deploy.py"],
        ("--exclude", "ws1"),
    ),
    ('gpu = ["ws1"]', ["-y", "--dry", "inventories/lab.py", "deploy.py"], ("leave out -y",)),
    ('gpu = ["ws1"]', ["--data", "smoke", "inventories/lab.py", "deploy.py"], ("KEY=VALUE",)),
    (
        'gpu = ["ws1"]',
        ["--data", "smok=always", "inventories/lab.py", "deploy.py"],
        ("smok", "smoke"),
    ),
    ('gpu = ["ws1"', ["inventories/lab.py", "deploy.py"], ("lab.py", "line 1", "never closed")),
    ("gpu = [wsl]", ["inventories/lab.py", "deploy.py"], ("lab.py", "line 1", "wsl")),
    ("", ["inventories", "deploy.py"], ("inventories is not an inventory",)),
    ("import nosuchmodule", ["inventories/lab.py", "deploy.py"], ("lab.py", "nosuchmodule")),
]


@pytest.mark.parametrize(("text", "arguments", "words"), WRONG_COMMANDS)
def test_a_wrong_command_line_or_inventory_is_one_sentence(
    text: str,
    arguments: list[str],
    words: tuple[str, ...],
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(project, text)
    sentence = one_sentence(capsys, arguments)
    for word in words:
        assert word in sentence


# (inventory, words the sentence must have); each was passed over with its whole group, or ended a
# run of all hosts in a traceback
WRONG_GROUPS: list[tuple[str, tuple[str, ...]]] = [
    ('gpu = ["ws1", ["ws2", {"p": "secret"}]]', ("gpu", "entry 2", "list", "'ws2'")),
    ('gpu = {"ws1": {"p": "secret"}}', ("group gpu is a dict",)),
    ('all = "ws1"', ("group all is a str",)),
    ('gpu = (name for name in ["ws1"])', ("group gpu is a generator",)),
    ('gpu = {"ws1", "ws2"}', ("group gpu is a set",)),
    ('gpu = ("ws1", "ws2")', ("group gpu is a tuple", "(hosts, data)")),
    ('gpu = [""]', ("gpu", "entry 1", "empty name")),
    ('gpu = [("ws1",)]', ("gpu", "entry 1", "'ws1'")),
    ('gpu = [("ws1", None)]', ("gpu", "entry 1", "'ws1'", "NoneType")),
    ('gpu = [("ws1", ["a"])]', ("gpu", "entry 1", "'ws1'", "list")),
    ('gpu = [("ws1", {}, {})]', ("gpu", "entry 1", "'ws1'", "dict and dict")),
    ("gpu = [4]", ("gpu", "entry 1", "int")),
    (
        'gpu = [("ws1", {"prefix": "/a"})]\nold = [("ws1", {"prefix": "/b"})]',
        ("group old", "'ws1'", "declared twice", "prefix", "group gpu"),
    ),
]


@pytest.mark.parametrize(("text", "words"), WRONG_GROUPS)
def test_what_pyinfra_would_pass_over_in_an_inventory_is_one_sentence(
    text: str, words: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = one_sentence(capsys, [write(project, f'{text}\ncpu = ["h"]'), "--dry", "deploy.py"])
    for word in ("inventories/lab.py", *words):
        assert word in said
    assert "secret" not in said


def test_what_is_no_group_may_stand_beside_groups(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
domain = "lab.example"
common = {"environment_variables": {"A": "x"}}
ports = {"ssh": 22}
_names = {"ws1", "ws2"}
empty = {}
gpu = [(f"{each}.{domain}", {**common}) for each in sorted(_names)]
old = (["ws1.lab.example"], {"smoke": "skip"})
"""
    command_line.check(["--dry", write(project, text), "deploy.py"])
    assert capsys.readouterr().err == ""


LONG = "w" * 64
WRONG_NAMES = [
    ('"ws1..lab.example"', "'ws1..lab.example'"),
    (f'"{LONG}.example"', "1 to 63 characters"),
    (r'"ws\ud800"', r"'ws\ud800': its name holds a character that cannot be printed"),
    ('"ws 1"', "'ws 1': its name holds a blank"),
    (r'"ws1\n"', r"'ws1\n'"),
    (r'"ws1\x1b[2J"', r"'ws1\x1b[2J'"),
    ('"-ws1"', "'-ws1': its name begins with a hyphen"),
    ('("ws1", {"ssh_hostname": "a..b"})', "host ws1: ssh_hostname = 'a..b'"),
    ('("ws1", {"ssh_hostname": 4})', "host ws1: ssh_hostname = 4 is no text"),
]


@pytest.mark.parametrize(("entry", "words"), WRONG_NAMES)
def test_a_name_that_would_end_the_run_of_all_hosts_is_one_sentence(
    entry: str, words: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = one_sentence(capsys, [write(project, f'gpu = ["good", {entry}]'), "--dry", "deploy.py"])
    assert words in said
    assert "codec" not in said


@pytest.mark.parametrize(
    "name",
    ["ws1.lab.example.", "10.0.0.1", "fe80::1%eth0", "my_alias", "bücher", "@docker/a:b", "@local"],
)
def test_a_name_that_can_be_looked_up_is_left_to_pyinfra(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command_line.check(["--dry", write(project, f'gpu = ["{name}"]'), "deploy.py"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("code", ["sys.exit(0)", "exit()", "sys.exit('no hosts today')"])
def test_an_inventory_that_ends_the_program_is_one_sentence(
    code: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = write(project, f'gpu = ["ws1"]\nimport sys\n{code}\n')
    assert f"{inventory} line 3 ends" in one_sentence(capsys, ["--dry", inventory, "deploy.py"])


def test_data_that_contains_itself_is_one_sentence(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '_own = {}\n_own["a"] = _own\ngpu = [("ws1", {"environment_variables": _own})]\n'
    said = one_sentence(capsys, ["--dry", write(project, text), "deploy.py"])
    assert "ws1" in said
    assert "Recursion" not in said


def test_each_wrong_host_gets_its_own_sentence(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = write(project, 'gpu = [("ws1", {"stak": 1}), "ws2", ("ws3", {"smoke_ranks": 1})]\n')
    with pytest.raises(SystemExit):
        command_line.check([inventory, "deploy.py"])
    text = capsys.readouterr().err
    assert text.count("pyinfra-gpu") == 2
    assert "ws1" in text
    assert "ws2" not in text
    assert "ws3" in text


def test_wrong_group_data_is_found_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "group_data").mkdir()
    (project / "group_data" / "gpu.py").write_text('stack = "r999"\n')
    sentence = one_sentence(capsys, [write(project, 'gpu = ["ws1"]'), "deploy.py"])
    assert "r999" in sentence


def test_right_data_passes_quietly(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = write(project, 'gpu = [("ws1", {"gpu_model": "RTX 5090"})]\n')
    command_line.check(["--dry", inventory, "deploy.py"])
    command_line.check(["-y", "--limit", "gpu", inventory, "deploy.py"])
    command_line.check(["--version"])
    assert capsys.readouterr().err == ""


def test_pyinfras_own_files_are_no_inventory_that_was_meant(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`nofile.py` was asked back as `config.py`."""
    for name in ("config.py", "deploy.py"):
        (project / name).write_text("")
    assert one_sentence(capsys, ["nofile.py", "deploy.py"]).endswith("; there is: none")
    write(project, 'gpu = ["ws1"]')
    assert "there is: inventories/lab.py" in one_sentence(capsys, ["nofile.py", "deploy.py"])
    assert "did you mean inventories/lab.py" in one_sentence(capsys, ["lap.py", "deploy.py"])


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def test_pyinfra_itself_exits_1_and_contacts_no_host(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    environment = {**os.environ, "PYINFRA_PROGRESS": "off"}
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    done = subprocess.run(
        [pyinfra, "-y", "--port", str(port), "--data", "smoke_ranks=1", "127.0.0.1", "deploy.py"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "smoke_ranks" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(TimeoutError):
        listening.accept()


def test_pyinfra_exits_1_when_the_inventory_path_does_not_exist() -> None:
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    done = subprocess.run(
        [pyinfra, "-y", "inventories/lob.py", "deploy.py"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "inventories/lab.py" in done.stderr


def test_without_a_terminal_a_run_that_would_ask_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = write(project, 'gpu = ["ws1"]\n')
    assert "add -y or --dry" in one_sentence(capsys, [inventory, "deploy.py"])


def test_deploying_from_another_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    done = subprocess.run(
        [pyinfra, "-y", "@local", str(PROJECT / "deploy.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"run pyinfra in {PROJECT}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refusal_fits_the_terminal_and_is_one_line_elsewhere(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [write(project, 'cpu = ["h"]'), "deploy.py", "--limit", f"no{'such' * 9}host"]
    whole = one_sentence(capsys, arguments)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        command_line.check(arguments)
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == click.unstyle(whole)
