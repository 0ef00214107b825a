"""The environment file: one KEY=VALUE per line, readable by systemd and by our wrapper alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyinfra_gpu.spec import HostSpec

HEADER = "# managed by pyinfra-gpu: changes made here are replaced by the next run"

# Characters that systemd.exec(5) and a POSIX shell read the same way without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=-]*")


def variables(spec: HostSpec) -> dict[str, str]:
    """Return the variables this host's environment file holds.

    Few on purpose. Variables that the launcher owns (``WORLD_SIZE``, ``MASTER_*``), that shadow
    the wheel's libraries (``LD_LIBRARY_PATH``), or that do nothing under torchrun
    (``USE_LIBUV``) are refused by the specification.
    """
    declared: dict[str, str] = {}
    if spec.accelerator == "nvidia":
        declared["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # same indices as nvidia-smi
    if spec.cuda.toolkit:
        declared["CUDA_HOME"] = f"/usr/local/cuda-{spec.cuda.release}"
    if not spec.environment.dynamo:
        # Exactly "1": torch compares the string. TORCH_COMPILE_DISABLE is harsher and makes
        # code that asks for fullgraph=True fail.
        declared["TORCHDYNAMO_DISABLE"] = "1"
    declared.update((n, v.get_secret_value()) for n, v in spec.environment.variables.items())
    return declared


def render(spec: HostSpec) -> str:
    """Return the whole environment file as text."""
    label = "\n# rehearsal: this host is simulated" if spec.rehearsal else ""
    lines = [f"{key}={quote(value)}" for key, value in sorted(variables(spec).items())]
    return "\n".join([HEADER + label, *lines]) + "\n"


def quote(value: str) -> str:
    """Quote a value so that systemd's EnvironmentFile and our wrapper read it back unchanged."""
    if _PLAIN.fullmatch(value):
        return value
    # Inside double quotes systemd undoes \\ and \" and leaves $ and ` alone once escaped.
    escaped = re.sub(r'([\\"$`])', r"\\\1", value)
    return f'"{escaped}"'


def render_torchrun(spec: HostSpec) -> str:
    """Return the ``torchrun`` wrapper: this project's environment, then the venv's torchrun.

    Sourcing the file runs nothing: it is ours, whole, and `quote` escapes what a shell expands.
    ``python -m torch.distributed.run`` is what the ``torchrun`` script calls.
    """
    paths = spec.paths
    return f"""#!/bin/sh
{HEADER}
# Usage: {paths.torchrun} --standalone --nproc-per-node 2 train.py
set -a
. {paths.env_file}
set +a
exec {paths.python} -m torch.distributed.run "$@"
"""
