"""The project's environment file and its ``torchrun`` wrapper."""

from __future__ import annotations

import hashlib
from io import StringIO
from typing import TYPE_CHECKING

from pyinfra import host
from pyinfra.operations import files

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, converging, unknown, verify
from pyinfra_gpu.engine.privilege import as_root, file_owner
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.spec import env_file

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "environment"


@converging(STAGE)
def project_files(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the environment file and the wrapper have exactly the declared content.

    + spec: the host's resolved specification

    Each is written whole. What stood there without our header, or was not a file, is kept next
    to it as ``NAME.before-pyinfra-gpu``.

    **Example:**

    .. code:: python

        environment.project_files(name="Write the environment file", spec=wanted)
    """
    deviations = wrong(spec, record)
    journal.found(STAGE, "; ".join(deviations.values()) or "as declared")
    if refusal := unknown(STAGE, spec, *(record.layout.entry(path) for path in deviations)):
        yield refusal
        return
    if not deviations:
        host.noop("the environment file and the wrapper are as declared")
        return
    user = file_owner(spec, record)
    journal.changed(STAGE, ", ".join(path.rsplit("/", 1)[1] for path in deviations))
    for path in deviations:
        yield from _keep_foreign(spec, record, path)
        text, mode = declared(spec)[path]
        yield from files.put._inner(
            src=StringIO(text), dest=path, mode=mode, user=user, create_remote_dir=False
        )
    yield verify(STAGE, spec, _still_wrong)


def declared(spec: HostSpec) -> dict[str, tuple[str, str]]:
    """Return path -> (content, mode) of the files this stage keeps."""
    return {
        spec.paths.env_file: (env_file.render(spec), "0644"),
        spec.paths.torchrun: (env_file.render_torchrun(spec), "0755"),
    }


def wrong(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return what is not as declared: path -> what was found, in a few words."""
    deviations = {}
    for path, (text, mode) in declared(spec).items():
        name = path.rsplit("/", 1)[1]
        entry = record.layout.entry(path)
        if isinstance(entry, Unknown):
            deviations[path] = f"{name} is unreadable ({entry.reason})"
        elif entry.kind == "absent":
            deviations[path] = f"no {name}"
        elif entry.kind != "file":
            deviations[path] = f"{name} is a {entry.kind}"
        elif entry.sha256 != hashlib.sha256(text.encode()).hexdigest():
            deviations[path] = f"{name} differs{_in_keys(spec, record, path)}"
        elif entry.mode != mode:
            deviations[path] = f"{name} has mode {entry.mode}"
    return deviations


def _in_keys(spec: HostSpec, record: Record, path: str) -> str:
    """Name the variables in which the environment file differs from what is declared."""
    text = record.environment.text
    if path != spec.paths.env_file or not isinstance(text, str):
        return ""
    found, wanted = env_file.parse(text), env_file.variables(spec)
    keys = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    return f" in {', '.join(keys)}" if keys else ""


def _still_wrong(spec: HostSpec, record: Record) -> str | None:
    deviations = wrong(spec, record)
    if deviations:
        return next(iter(deviations.values()))
    text = record.environment.text
    read_back = env_file.parse(text) if isinstance(text, str) else {}
    if read_back != env_file.variables(spec):
        return f"{spec.paths.env_file} reads back as {read_back}"
    return None


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
    )
