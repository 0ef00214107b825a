"""An environment with another Python: what is found, and in which order a new one is made."""

from __future__ import annotations

import pytest
from fake_host import FakeHost, FakeRun

from pyinfra_gpu.stages.environment import findings as environment
from pyinfra_gpu.stages.pytorch import findings as pytorch

VENV = "/opt/pyinfra-gpu/venv"
MINE = "/opt/python/bin/python3"


def found(python: str, **reported: str | None) -> str:
    """What is wrong with the environment of a host, "" where nothing is."""
    host = FakeHost(data={**FakeHost().data, "pytorch_python": python}, reported=dict(reported))
    record = host.record()
    findings = [each for each in pytorch.judge(host.spec(), record) if "environment" in each.id]
    return "; ".join(each.found for each in findings)


BASE, DECLARED = "torch.base", "torch.declared"


@pytest.mark.parametrize(
    ("python", "reported", "words"),
    [
        ("python3", {}, ""),
        ("3.11", {}, ""),
        ("python3.11", {BASE: "/opt/other/python3.11"}, ""),
        ("3.12", {}, "Python 3.11.2, declared is 3.12"),
        (MINE, {BASE: "/opt/python/bin/python3.11", DECLARED: "/opt/python/bin/python3.11"}, ""),
        (MINE, {DECLARED: "/opt/python/bin/python3.11"}, f"declared is {MINE}"),
        (MINE, {DECLARED: None}, f"the declared {MINE} is not there"),
        (MINE, {DECLARED: f"?{MINE}: no answer within 5 s"}, ""),
        (MINE, {BASE: "?cut off", DECLARED: None}, ""),
    ],
)
def test_an_environment_of_another_interpreter_is_found(
    python: str, reported: dict[str, str | None], words: str
) -> None:
    said = found(python, **reported)
    assert words in said
    assert bool(words) == bool(said)


FILE = "/etc/environment"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (f"{FILE} PYTHONPATH", f"every login gets PYTHONPATH from {FILE}"),
        ("/etc/profile.d/x.sh LD_PRELOAD", "LD_PRELOAD from /etc/profile.d/x.sh"),
        (f"{FILE} CUDA_VISIBLE_DEVICES", ""),  # a host without a GPU
        (f"{FILE} LANG", ""),
        (f"{FILE} NCCL_SOCKET_IFNAME", ""),
    ],
)
def test_what_every_login_gets_is_left_and_told(row: str, words: str) -> None:
    host = FakeHost(reported={"environment.for_all": [row]})
    record = host.record()
    findings = environment.judge(host.spec(), record)
    assert [each.effect for each in findings] == ["report"] * bool(words)
    assert words in "".join(each.found for each in findings)
    assert FakeRun(host).prepare().changing("ws1") == []


def test_the_new_one_is_whole_and_imported_before_the_old_one_gives_way() -> None:
    data = {**FakeHost().data, "pytorch_python": "3.12"}
    host = FakeHost(data=data, reported={"torch.declared": "/usr/bin/python3.12"})
    run = FakeRun(host, FakeHost(name="ws2")).prepare().execute()
    commands = run.executed("ws1")
    order = [
        next(n for n, command in enumerate(commands) if words in command)
        for words in (
            f"find {VENV}.new -mindepth 1 -delete",
            f"find {VENV}.old -mindepth 1 -delete",
            f"--relocatable --cache-dir /opt/pyinfra-gpu/cache --python 3.12 {VENV}.new",
            f"--python {VENV}.new/bin/python",
            f"{VENV}.new/bin/python -I -c",
            f"switch.sh {VENV} ",
        )
    ]
    assert order == sorted(order)
    before = [each for each in commands[: order[-1]] if f"{VENV}/" in each]
    assert before == []


def test_a_python_that_the_host_does_not_have_is_downloaded_by_uv() -> None:
    mirror = "https://mirror.example.org/python"
    data = {**FakeHost().data, "pytorch_python": "3.13", "pytorch_python_url": mirror}
    host = FakeHost(
        data=data, reported=dict.fromkeys(("torch.python", "torch.base", "torch.declared"))
    )
    commands = FakeRun(host, FakeHost(name="ws2")).prepare().execute().executed("ws1")
    (made,) = (each for each in commands if " venv " in each)
    assert "UV_PYTHON_INSTALL_DIR=/opt/pyinfra-gpu/cache/python" in made
    assert f"UV_PYTHON_INSTALL_MIRROR={mirror}" in made
    assert "--python-preference system" in made and "--python 3.13" in made


def test_a_first_environment_is_made_in_its_place() -> None:
    host = FakeHost(reported={"torch.python": None, "torch.base": None})
    commands = FakeRun(host, FakeHost(name="ws2")).prepare().execute().executed("ws1")
    assert any(f"place.sh {VENV} " in each for each in commands)
    assert not any("relocatable" in each or "switch.sh" in each for each in commands)
