"""S1 to S3: each device tried alone, by one process; they run side by side.

The starter (`start`) only starts them and tells their exit codes, as torchrun does for ranks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType

from .. import processes, stacks
from ..journal import SINGLE, Writer
from ..options import REHEARSAL_CPU, SingleOptions
from . import compile_check, libraries, libuv


def start(options: SingleOptions) -> int:
    """Start one process a device, wait for all, and print the exit codes of those that failed."""
    processes.tie_to(options.launcher_pid, generations=1)
    children = []
    for device in range(options.devices):
        command = [sys.executable, *sys.argv, "--device", str(device)]
        log = options.directory / f"single{device}.log"
        cache = compile_check.caches(options.directory / "compiled" / f"single{device}")
        with log.open("wb") as output:
            children.append(
                subprocess.Popen(
                    command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **cache}
                )
            )
    codes = [child.wait() for child in children]
    for device, code in enumerate(codes):
        if code:
            print(f"process : {device}\n  exitcode : {code} (pid: {children[device].pid})")
    return 1 if any(codes) else 0


def run(options: SingleOptions) -> int:
    """Try one device; return the exit code."""
    processes.tie_to(options.launcher_pid, generations=2)
    device = options.device or 0
    stacks.offer_stacks(options.directory, SINGLE, device)
    journal = Writer(options.directory, device, SINGLE)
    journal.started(pid=os.getpid())
    try:
        _measure(options, journal, device)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def _measure(options: SingleOptions, journal: Writer, device: int) -> None:
    with journal.measuring("import") as value:
        import torch

        value["torch"] = torch.__version__
    on_cpu = options.mode == REHEARSAL_CPU
    journal.fact("identity", identity(torch), 0.0)
    if not on_cpu:
        from ..gpu import device as gpu_device

        gpu_device.measure(torch, device, journal)
    with journal.measuring("libraries") as value:
        value.update(libraries.read(digests=device == 0))
    with journal.measuring("libuv") as value:
        value.update(libuv.try_server())
    with journal.measuring("compile") as value:
        value.update(compile_check.measure("cpu" if on_cpu else f"cuda:{device}"))
    journal.finished()


def identity(torch: ModuleType) -> dict[str, object]:
    """Return which process this is, and which torch it has imported."""
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "python": sys.executable,
        "torch": torch.__version__,
        "torch_path": str(Path(str(torch.__file__)).resolve()),
    }
