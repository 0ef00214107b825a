"""The files of ours outside `prefix` that every host may have; those of its package manager are
`pyinfra_gpu.packages.own_files`. Each text begins with HEADER and is written whole.
"""

from __future__ import annotations

HEADER = "# Managed by pyinfra-gpu: changes are replaced by the next run.\n"

REBOOTS = "/var/lib/pyinfra-gpu/reboots"
"""Each reboot that was asked for and whose cause is not known to be gone: time, boot_id, reason."""


LEASE = "/run/pyinfra-gpu/lease"
"""Locked by the run that works on the host; holds who that is."""

KEYRING = "/usr/share/keyrings/pyinfra-gpu-nvidia.gpg"
MODPROBE = "/etc/modprobe.d/pyinfra-gpu-nvidia.conf"

ALL = (KEYRING, MODPROBE)
