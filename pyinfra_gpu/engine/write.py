"""The one way in which a file gets onto a host: whole or not at all, and never through a link."""

from __future__ import annotations

import base64
from typing import Any

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.privilege import guard
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.on_host import program
from pyinfra_gpu.stages.files import File
from pyinfra_gpu.text import shortened

__all__ = ["File", "command", "sent", "write", "written"]
_LONGEST_REASON = 200  # characters


def command(file: File, run_as: dict[str, Any]) -> str:
    """Return the shell command that writes a file whose content comes on standard input."""
    return program(
        "files/write.sh",
        *(file.path, str(len(file.content)), file.mode, file.owner or ""),
        guard(run_as),
        uses=("files/root_only.sh",),
    )


def sent(file: File) -> str:
    """Return the content as it goes through standard input."""
    return base64.encodebytes(file.content).decode("ascii")


def write(stage: str, file: File, run_as: dict[str, Any]) -> PyinfraCommand:
    """Return a pyinfra command that writes a file on the host; see `written`."""
    return FunctionCommand(written, (stage, file, run_as), {})


def written(state: State, host: Host, stage: str, file: File, run_as: dict[str, Any]) -> bool:
    """Write a file on the host; say why and fail the host where that is not possible.

    + stage: the stage that writes it
    + run_as: pyinfra's global arguments from `pyinfra_gpu.engine.privilege`: the one user who
      does all of it

    The content goes through standard input, so that no command line and no log has it, into a
    file of an unguessable name in the same folder; that is renamed once it is whole, on disk, and
    has its mode and owner. A link at the path is replaced, never followed. Root refuses to write
    where somebody else can change the folder, or the way to it.
    """
    answer = ask(
        state, host, command(file, run_as), run_as, seconds=deadlines.PLAIN, _stdin=sent(file)
    )
    if answer.ok:
        return True
    said = [line.strip() for line in answer.lines if line.strip()]
    why = shortened(said[-1], _LONGEST_REASON) if said else "the command said nothing"
    return failed(host, stage, f"{host.name}: {file.path} cannot be written: {why}")
