"""Nobody else can connect to what a test of one host listens at; and what is claimed was tried."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyinfra_gpu.on_host.smoke.judge.listens import ANYONE, ITSELF
from pyinfra_gpu.on_host.smoke.launcher import network

from pyinfra_gpu import on_host

_PACKAGE = Path(on_host.__file__).parent
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_AS_ANOTHER = [
    pytest.param((), id="as it is"),
    pytest.param(
        _NOBODY,
        id="without root",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="it is without root already"),
    ),
]
_PROGRAM = """
import json, socket, sys
from smoke.launcher import network
before = sys.argv[1] == "open" or network.alone(sys.argv[2])
server = socket.create_server(("", 0))
found = before if before is True else before.as_json()
print(json.dumps({"port": server.getsockname()[1], "listens": found}), flush=True)
socket.create_connection(("127.0.0.1", server.getsockname()[1]), timeout=5).close()
print(json.dumps(network.only_loopback()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy that any user can read."""
    top = tmp_path
    while top.is_relative_to(tempfile.gettempdir()) and top != Path(tempfile.gettempdir()):
        top.chmod(0o755)
        top = top.parent
    shutil.copytree(_PACKAGE / "smoke", tmp_path / "smoke")
    return tmp_path


def listening(
    package: Path, *arguments: str, by: Sequence[str] = ()
) -> tuple[subprocess.Popen[str], dict[str, object]]:
    """Start a program that listens at all its addresses; return it and what it says of itself."""
    python = "/usr/bin/python3" if by else sys.executable
    process = subprocess.Popen(
        [*by, python, "-c", _PROGRAM, *arguments],
        cwd=package,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = dict(json.loads(process.stdout.readline()))
    assert process.stdout.readline().strip() in ("true", "false")  # it can connect to itself
    return process, told


def connects(port: object) -> bool:
    assert isinstance(port, int)
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("by", _AS_ANOTHER)
def test_what_is_alone_is_reached_by_itself_and_by_nobody_else(
    by: Sequence[str], package: Path
) -> None:
    """Where this machine allows no namespace it must say so: the claim is what is tested."""
    process, told = listening(package, "alone", "rehearsal-cpu", by=by)
    with process:
        assert isinstance(told["listens"], dict)
        assert connects(told["port"]) is (told["listens"]["to"] == ANYONE)
        if not by and os.geteuid() == 0 and _can_make_namespaces():
            assert told["listens"]["to"] == ITSELF
        process.communicate("")


def _can_make_namespaces() -> bool:
    return subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


def test_what_is_not_alone_can_be_reached(package: Path) -> None:
    process, told = listening(package, "open", "")
    with process:
        assert connects(told["port"])
        process.communicate("")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's rights take root")
def test_cuda_is_not_kept_from_making_its_devices(package: Path) -> None:
    """Without root, and without the device that a setuid program of NVIDIA's may have to make."""
    if Path("/dev/nvidia-uvm").exists():
        pytest.skip("the device is there")
    process, told = listening(package, "alone", "gpu", by=_NOBODY)
    with process:
        assert isinstance(told["listens"], dict)
        assert told["listens"]["to"] == ANYONE
        assert "nvidia-uvm is to be made first" in str(told["listens"]["how"])
        assert connects(told["port"])
        process.communicate("")


_REFUSED = """
import json, os
from smoke.launcher import network
real, ours = network._unshare, os.readlink("/proc/self/ns/net")
def refuses(flags):
    {first}
    raise OSError({number}, "unshare: refused here")
network._unshare = refuses
found = network.alone("rehearsal-cpu").as_json()
print(json.dumps({{**found, "stayed": os.readlink("/proc/self/ns/net") == ours}}))
"""


@pytest.mark.parametrize(
    ("first", "number"),
    [("pass", 28), ("real(flags)", 13)],
    ids=["no namespace", "a namespace and no right in it"],  # the latter as AppArmor does
)
def test_a_machine_that_refuses_is_said_to_and_nothing_is_left_half(
    first: str, number: int, package: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED.format(first=first, number=number)],
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["to"] == ANYONE
    assert "unshare: refused here" in told["how"]
    assert told["stayed"]


def test_no_limit_is_claimed_where_systemd_has_set_none() -> None:
    assert network.of_group().to == ANYONE


def test_the_address_that_shows_a_limit_is_this_machines_and_not_allowed() -> None:
    kept_out = ipaddress.ip_address(network._KEPT_OUT)
    assert kept_out.is_loopback
    allowed = [ipaddress.ip_network(each) for each in network.ALLOWED_LOOPBACK]
    assert not any(kept_out in each for each in allowed if each.version == 4)
    assert any(ipaddress.ip_address("127.0.0.53") in each for each in allowed)
