"""Runs pyinfra's and our own command line, or a text of Python, each in a fork of this process.

Importing them is most of what a run costs the processor. Here it is done once; what a run does
after that is what the installed program does, in a process of its own with its own environment,
arguments and output. Started by warm.py, which reads one line when all is imported, then writes one
request a line, as JSON, and reads two lines for each: the id of the process, then its exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NoReturn

from gevent.monkey import get_original
from pyinfra_cli.main import main as pyinfra  # first: it replaces parts of Python by gevent's

from pyinfra_gpu.cli import main as pyinfra_gpu
from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.drift import launcher_files
from pyinfra_gpu.stacks.bundle import smoke_bundle

VENV_PYTHON = "/opt/pyinfra-gpu/venv/bin/python"  # where nothing else is declared


def python() -> None:
    """Run what follows `-c`, as the interpreter does."""
    text = sys.argv.pop(2)
    del sys.argv[0]
    exec(text, {"__name__": "__main__"})


PROGRAMS = {"pyinfra": pyinfra, "pyinfra-gpu": pyinfra_gpu, "python": python}
# Gevent's own would begin an event loop in this process, which the forks would share.
fork, wait = get_original("os", ["fork", "waitpid"])


def import_all() -> None:
    """Import what the verbs of our command line import, and what a deploy does first of all."""
    for verb in Path("pyinfra_gpu").rglob("cli.py"):
        import_module(".".join(verb.with_suffix("").parts))
    for module in iter_modules(["pyinfra_gpu/operations"], "pyinfra_gpu.operations."):
        import_module(module.name)
    import_module("pyinfra_gpu.report.run")


def make_all() -> None:
    """Make what each run would make anew of the package's own files, and keep for itself.

    That is what is known of failures, for the runs that meet one, and the programs for hosts.
    """
    explain_lines(["nothing that anybody knows"])
    launcher_files.program(VENV_PYTHON)
    smoke_bundle()


def become(request: dict[str, Any]) -> None:
    """Make this process the one that was asked for, but for the program itself."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for descriptor, path in ((0, os.devnull), (1, request["output"]), (2, request["errors"])):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = request["command"]


def end(program: Callable[[], object]) -> NoReturn:
    """Run PROGRAM, then end this process as the interpreter does, but for taking modules apart.

    That would be most of what a short run takes, and no run can show a difference.
    """
    try:
        code = program()
    except SystemExit as asked:
        code = asked.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def main() -> None:
    """Answer requests until there are no more."""
    import_all()
    make_all()
    # What is imported stays, so a fork need not look through it for garbage, nor copy it thereby.
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    while line := sys.stdin.readline():
        request = json.loads(line)
        process = fork()
        if process == 0:
            become(request)
            end(PROGRAMS[Path(request["command"][0]).name])
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(wait(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
