"""The program of a run: its command line, and how its ranks' output comes to the supervisor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import presets
from ..presets import Preset
from ..site import Site

# Each rank becomes the program itself, so that a signal for it reaches it; before that it turns to
# the pipe of its own number on this host.
_TURNED = 'exec >"$0$LOCAL_RANK" 2>&1 && exec "$@"'


def values(run: Path, preset: Preset, ranks: int) -> dict[str, object]:
    """Return what `{...}` stands for in the texts of a preset."""
    count = preset.processes(ranks)
    places = {"run": str(run), "name": run.name, "ranks": count, "home": str(Path.home())}
    given = {name: value for name, value in preset.arguments.items() if value is not None}
    # An argument may have places of its own: `--set checkpoints=FOLDER` is where they are then.
    filled = {
        name: presets.filled(value, places) if isinstance(value, str) else value
        for name, value in given.items()
    }
    return {**filled, **places}


def words(
    site: Site,
    run: Path,
    preset: Preset,
    ranks: int,
    further: tuple[str, ...],
    resumed: Mapping[str, object] | None,
) -> list[str]:
    """Return the program with its arguments, as each rank runs it.

    + further: words behind all others
    + resumed: what {checkpoint} and {step} stand for, None for a run from the beginning
    """
    known = {**values(run, preset, ranks), **(resumed or {})}
    arguments = {**preset.arguments, **(preset.resume if resumed is not None else {})}
    program = ["-m", preset.module] if preset.module else [str(preset.file)]
    return [
        *(site.python, "-u", *map(str, program)),
        *presets.argument_words(arguments, known),
        *(presets.filled(word, known) for word in preset.words),
        *further,
    ]


def command(
    site: Site, preset: Preset, ranks: int, program: list[str], hosts: int = 1
) -> list[str]:
    """Return the command of the whole run, as a person would type it.

    + hosts: of several, how they find each other is added when they have met
    """
    if preset.launch == "python":
        return program
    alone = ["--standalone"] if hosts == 1 else ["--nnodes", str(hosts)]
    torchrun = ["-m", "torch.distributed.run", *alone, "--nproc-per-node", str(ranks)]
    return [site.python, *torchrun, "--no-python", *program]


def with_pipes(command: list[str], folder: Path, further: Sequence[str] = ()) -> list[str]:
    """Return the command with torchrun's own notes in the folder, and each rank at its pipe.

    + further: options of torchrun's
    """
    if "--no-python" not in command:
        return command
    at = command.index("--no-python")
    turned = ["sh", "-c", _TURNED, f"{folder}/.pipe"]
    kept = ["--log-dir", f"{folder}/torchrun"]
    return [*command[:at], *further, *kept, "--no-python", *turned, *command[at + 1 :]]


def pipes(folder: Path, ranks: int) -> list[int]:
    """Make a pipe for each rank, and open it; it has no end while we have it open ourselves."""
    opened = []
    for rank in range(ranks):
        path = folder / f".pipe{rank}"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        opened.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    return opened


def start(
    command: list[str], folder: Path, environment: Mapping[str, str], output: int
) -> subprocess.Popen[bytes]:
    """Start the program in the run's code.

    + output: a descriptor for what torchrun itself prints
    """
    return subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
