"""Reaching throwaway hosts from outside, as a user's own programs do."""

from __future__ import annotations

import socket
import subprocess

from running import PATIENCE_S

from pyinfra_gpu_rehearsal import Lab, LabHost


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(lab.ssh_config), *options, host, command]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def banner(host: LabHost, timeout: float = 5) -> bytes:
    """Return the first bytes a host's SSH server says."""
    with socket.create_connection((host.address, host.port), timeout=timeout) as connection:
        return connection.recv(4)


def answers(host: LabHost) -> bool:
    try:
        return banner(host) == b"SSH-"
    except OSError:
        return False
