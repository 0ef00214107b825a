"""The command of a host's power button; the programs that it runs are in on_host/."""

from __future__ import annotations

from pathlib import Path

from pyinfra_gpu_rehearsal.nvidia.hardware import CONNECT_GPUS

ON_HOST = Path(__file__).parent / "on_host"

# A host's root may do all that stays within the host, but not touch the real kernel or disks.
_TAKEN = "-sys_module,-sys_rawio,-sys_time,-mknod"
FEWER_RIGHTS = ("setpriv", f"--bounding-set={_TAKEN}", f"--inh-caps={_TAKEN}")


def button_command(folder: Path, group: Path, name: str) -> list[str]:
    """Return the command of the power button of host NAME.

    + folder: the host's folder, with own, base, bytecode, up, work and root in it.
    + group: the control group of what is on while the host is.
    """
    program = ["sh", str(ON_HOST / "button.sh"), str(folder), str(group), name, str(CONNECT_GPUS)]
    return [*program, *FEWER_RIGHTS]
