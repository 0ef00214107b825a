"""Throwaway SSH hosts: real systemd machines in Linux namespaces, for rehearsals and tests."""

from __future__ import annotations

from pathlib import Path

from pyinfra_gpu_rehearsal.commands import LabError
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab, LabRecord
from pyinfra_gpu_rehearsal.own_layer import KEY, KNOWN_HOSTS
from pyinfra_gpu_rehearsal.requirements import available, gpus_available

__all__ = ["Lab", "LabError", "LabHost", "available", "gpus_available", "inventory"]

# NVIDIA's repository for Debian 13 begins with branch 590 and CUDA 13.1, and the lab's repositories
# have CUDA 13.0.
_OF_RELEASE: dict[str, dict[str, object]] = {
    "debian13": {"stack": "r595-cu132", "cuda_toolkit": False}
}


def _gpu_data(lab: Lab, host: LabHost) -> dict[str, object]:
    """Return what a deploy must know of a host's simulated GPUs; nothing where it has none."""
    if host.machine is None:
        return {}
    record, nvidia = LabRecord.load(lab.directory), lab.nvidia
    return {
        "gpu_model": host.machine.model,
        "gpu_count": host.machine.count,
        "driver_repository_url": nvidia.url,
        "driver_key_fingerprint": nvidia.key_fingerprint,
        "driver_keyring_sha256": nvidia.keyring_sha256,
        **_OF_RELEASE.get(record.release if record else "", {}),
    }


def inventory(directory: Path = Path(".rehearsal")) -> list[tuple[str, dict[str, object]]]:
    """Return the throwaway hosts, as pyinfra's inventory files name hosts.

    Raises LabError where there is none.
    """
    lab = Lab(directory)
    hosts = lab.all_hosts()  # one that is off is as unreachable as a real one
    if not hosts:
        raise LabError(NONE_UP)
    return [
        (
            host.name,
            {
                "ssh_hostname": host.address,
                "ssh_port": host.port,
                "ssh_user": host.user,
                "ssh_key": str(lab.directory / KEY),
                "ssh_known_hosts_file": str(lab.directory / KNOWN_HOSTS),
                "ssh_strict_host_key_checking": "yes",
                **_gpu_data(lab, host),
            },
        )
        for host in hosts
    ]
