"""SSH as users have it: their own ssh config, jump hosts, and a network that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import PATIENCE_S, PROJECT

from pyinfra_gpu_rehearsal import Lab

pytestmark = pytest.mark.rehearsal


@pytest.fixture
def home(lab: Lab, tmp_path: Path) -> Path:
    """A user's home whose ssh config knows the hosts; gpu2 is behind gpu1."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    jump = "Host behind\n  ProxyJump gpu1\n  HostName {address}\n"
    known = lab.ssh_config.read_text(encoding="utf-8")
    address = lab.host("gpu2").address
    settings = f"  User ubuntu\n  IdentityFile {lab.directory}/id_ed25519\n"
    settings += f"  UserKnownHostsFile {lab.directory}/known_hosts\n"
    settings += "  StrictHostKeyChecking yes\n"
    (ssh / "config").write_text(jump.format(address=address) + settings + known)
    return tmp_path


def look(host: str, home: Path) -> dict[str, dict[str, object]]:
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    done = subprocess.run(
        [
            *(pyinfra, "--json", "--data", "stack=cpu-torch2.13", host),
            *("fact", "pyinfra_gpu.facts.probe.Look"),
        ],
        cwd=PROJECT,
        env={**os.environ, "HOME": str(home), "PYINFRA_PROGRESS": "off"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (records,) = json.loads(done.stdout).values()
    return dict(records[host])


def test_the_users_ssh_config_leads_to_a_host_behind_a_jump_host(lab: Lab, home: Path) -> None:
    assert look("gpu1", home)["system"]["hostname"] == "gpu1"
    assert look("behind", home)["system"]["hostname"] == "gpu2"
