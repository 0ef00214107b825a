"""The files of ours outside `prefix`. Each begins with HEADER and is written whole."""

from __future__ import annotations

HEADER = "# Managed by pyinfra-gpu: changes are replaced by the next run.\n"

KEYRING = "/usr/share/keyrings/pyinfra-gpu-nvidia.gpg"
SOURCES = "/etc/apt/sources.list.d/pyinfra-gpu-nvidia.list"
PREFERENCES = "/etc/apt/preferences.d/pyinfra-gpu-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/52pyinfra-gpu-unattended-upgrades"
MODPROBE = "/etc/modprobe.d/pyinfra-gpu-nvidia.conf"

ALL = (KEYRING, SOURCES, PREFERENCES, UNATTENDED, MODPROBE)
