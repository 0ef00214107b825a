"""The project's environment file and its ``torchrun`` wrapper."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from pyinfra.operations import files

from pyinfra_gpu.drift import environment as drift
from pyinfra_gpu.drift.finding import Findings
from pyinfra_gpu.engine import deadlines, journal
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root, file_owner
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.spec import env_file

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE


@converging(
    drift,
    repairs=drift.IDS,
)
def project_files(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the environment file and the wrapper have exactly the declared content.

    + spec: the host's resolved specification

    Each is written whole. What stood there without our header, or was not a file, is kept next
    to it as ``NAME.before-pyinfra-gpu``.

    **Example:**

    .. code:: python

        environment.project_files(name="Write the environment file", spec=wanted)
    """
    del found
    user = file_owner(spec, record)
    for path, _ in drift.wrong(spec, record):
        yield from _keep_foreign(spec, record, path)
        text, mode = drift.declared(spec)[path]
        yield from files.put._inner(
            src=StringIO(text), dest=path, mode=mode, user=user, create_remote_dir=False
        )


def _keep_foreign(spec: HostSpec, record: Record, path: str) -> Commands:
    """Set aside what is not ours, once; an edited file of ours is simply replaced."""
    entry = record.layout.entry(path)
    if isinstance(entry, Unknown) or entry.kind == "absent":
        return
    kept = f"{path}.before-pyinfra-gpu"
    text = record.environment.text if path == spec.paths.env_file else env_file.HEADER
    if entry.kind != "file" or env_file.HEADER not in str(text):
        journal.warn(STAGE, f"{spec.host}: what stood at {path} is kept as {kept}")
    header = quoted(env_file.HEADER)
    ours = f"grep -qxF {header} {quoted(path)}" if entry.kind == "file" else "false"
    # Never replaced: the first one is the user's original. A later one gets the time as a suffix.
    move = (
        f't={quoted(kept)}; [ ! -e "$t" ] || t="$t.$(date +%Y%m%dT%H%M%S)"; mv {quoted(path)} "$t"'
    )
    yield step(
        STAGE,
        f"keep what stands at {path}, if it is not ours",
        f"{ours} || {{ {move}; }}",
        run_as=as_root(spec),
        seconds=deadlines.PLAIN,
    )
