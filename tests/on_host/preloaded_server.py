"""A Python that has imported modules once, and forks wherever another one would be started anew.

    python preloaded_server.py SOCKET MODULE,MODULE PADDING

For each connection that comes over the socket it forks a child, which runs the command line asked
for there (see `preloaded`, the other end). A child that starts `sys.executable` forks in turn, so
a smoke test's launcher, torchrun and ranks are a tree of processes as ever: parents, sessions,
signals and exit codes are the real ones. Left out are only the start of an interpreter, its imports
of these modules, and how it is taken apart at its end. Whatever cannot be had this way is
started for real: another program, other options, or other values of the variables that act only
when a process starts.

It has one thread when it forks. When the other end of the socket is closed it ends, and everything
it has started with it. It runs with torch's Python, which has nothing of this project.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

AT_START = (
    *("PYTHON", "LD_", "LANG", "LC_", "OMP_", "MKL_", "TORCHDYNAMO_", "CXX"),
    *("TORCHINDUCTOR_COMPILE_", "TORCHINDUCTOR_VEC_"),
)
"""The beginnings of variables that are read when a process starts, or on the import of torch."""
_ALL_FILES = os.sysconf("SC_OPEN_MAX")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 48 - 3, 49 - 3  # /proc/PID/stat, counted behind the name


@dataclass(frozen=True)
class Program:
    """What an interpreter's command line asks for: a file or a module, and its arguments."""

    name: str
    is_module: bool
    unbuffered: bool
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, command: Sequence[str]) -> Program | None:
        """Return what `command` runs, None if it is another program or has other options."""
        if not command or command[0] != sys.executable:
            return None
        words = list(command[1:])
        unbuffered = words[:1] == ["-u"]
        is_module = words[unbuffered : unbuffered + 1] == ["-m"]
        name, *arguments = words[unbuffered + is_module :] or ["-"]
        if name.startswith("-"):
            return None
        return cls(name, is_module, unbuffered, tuple(arguments))

    def run(self) -> int:
        """Run it as the interpreter does; return the exit code."""
        if self.unbuffered:
            sys.stdout, sys.stderr = _unbuffered(sys.stdout), _unbuffered(sys.stderr)
        sys.argv[:] = [self.name, *self.arguments]
        try:
            if self.is_module:
                sys.path.insert(0, str(Path.cwd()))
                sys.modules.pop(self.name, None)
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                if not zipfile.is_zipfile(self.name):
                    sys.path.insert(0, str(Path(self.name).parent))
                runpy.run_path(self.name, run_name="__main__")
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        except KeyboardInterrupt as error:
            sys.excepthook(type(error), error, error.__traceback__)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
        return 0


def _unbuffered(file: Any) -> Any:
    raw = open(file.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
    return type(file)(raw, encoding=file.encoding, errors=file.errors, write_through=True)


@dataclass(frozen=True)
class Fresh:
    """What a new interpreter has, and what a forked one is brought back to."""

    variables: dict[str, str] = field(default_factory=lambda: _at_start(os.environ))
    modules: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a process with this environment would have started as this one has."""
        return _at_start(environment) == self.variables

    def become(self, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        """Turn this process, just forked, into what `command` starts; with its end it ends.

        Files 0 to 2, directory, session and signal mask are already what they shall be.
        """
        code = 1
        try:
            os.closerange(3, _ALL_FILES)
            _restore_signals()
            os.environ.clear()
            os.environ.update(environment)
            atexit._clear()  # those are the parent's
            for name in set(sys.modules) - self.modules:
                del sys.modules[name]
            sys.path[:] = self.path
            sys.orig_argv[:] = command
            _show(command)
            program = Program.of(command)
            assert program is not None
            code = program.run()
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Taking apart all that torch has set up would take longer than most that runs here.
            os._exit(code & 0xFF)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _restore_signals() -> None:
    """Undo what a program has changed, as the kernel and then Python do at a start."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)


def _show(command: Sequence[str]) -> None:
    """Have /proc/PID/cmdline tell what runs here: tests look for processes by that."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
    text = b"\0".join(map(os.fsencode, command))[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


class Popen(subprocess.Popen[Any]):
    """Forks this interpreter where it is started anew; everything else is as ever.

    What comes between fork and exec is subprocess's own: `preexec_fn` is the last step of it.
    """

    fresh: Fresh

    def __init__(self, args: Any, *rest: Any, **how: Any) -> None:
        if not rest and self._can_fork(args, how):
            environment = os.environ.copy() if how.get("env") is None else how["env"]
            how["preexec_fn"] = partial(self._become, how.get("preexec_fn"), args, environment)
            sys.stdout.flush()  # or the child writes that too
            sys.stderr.flush()
        super().__init__(args, *rest, **how)

    def _can_fork(self, args: Any, how: Mapping[str, Any]) -> bool:
        if not isinstance(args, list | tuple) or Program.of(list(map(os.fspath, args))) is None:
            return False
        known = {"env", "cwd", "stdin", "stdout", "stderr", "start_new_session", "preexec_fn"}
        return how.keys() <= known and self.fresh.fits(how.get("env") or os.environ)

    def _become(self, first: Any, args: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        if first is not None:
            first()
        self.fresh.become(list(map(os.fspath, args)), environment)


@dataclass(frozen=True)
class Child:
    """A forked process, and the connection that asked for it."""

    pid: int
    ended: int
    """Readable once it has ended (pidfd_open(2))."""
    connection: socket.socket

    def signal(self) -> None:
        """Send it what the other end sends; kill it if the other end has gone."""
        number = self.connection.recv(1)
        signal.pidfd_send_signal(self.ended, number[0] if number else signal.SIGKILL)

    def finish(self) -> None:
        """Tell the other end how it has ended."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.ended)
        with self.connection, suppress(ConnectionError):
            self.connection.sendall(status.to_bytes(4, "big"))


class Server:
    """Forks a child for each connection."""

    def __init__(self, fresh: Fresh, connections: socket.socket) -> None:
        self._fresh = fresh
        self._connections = connections
        self._children: dict[int, Child] = {}
        """By each of the two files to watch for it."""

    def serve(self) -> None:
        """Serve until no more connections can come."""
        while True:
            readable, _, _ = select.select([self._connections.fileno(), *self._children], [], [])
            for file in readable:
                child = self._children.get(file)
                if child is None:
                    _, files, _, _ = socket.recv_fds(self._connections, 1, 1)
                    if not files:
                        return
                    self._start(socket.socket(fileno=files[0]))
                elif file == child.ended:
                    del self._children[child.ended], self._children[child.connection.fileno()]
                    child.finish()
                    break  # its connection may be among the readable ones
                else:
                    child.signal()

    def _start(self, connection: socket.socket) -> None:
        size, files, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as rest:
            asked = json.loads(rest.read(int.from_bytes(size, "big")))
        pid = os.fork()
        if pid == 0:
            _die_with_parent()
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.chdir(asked["cwd"])
            self._fresh.become([sys.executable, *asked["arguments"]], asked["environment"])
        for file in files:
            os.close(file)
        connection.sendall(pid.to_bytes(4, "big"))
        child = Child(pid, os.pidfd_open(pid), connection)
        self._children |= {child.ended: child, connection.fileno(): child}


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return what `inspect.stack` does, without lines of source.

    torchrun calls it for each event, for the name of one function; to find the source of every
    frame among two thousand modules takes a second of a run.
    """
    found: list[inspect.FrameInfo] = []
    frame = sys._getframe(0).f_back
    while frame is not None:
        code = frame.f_code
        info = (frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
        found.append(inspect.FrameInfo(*info))
        frame = frame.f_back
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def preload(modules: Sequence[str]) -> None:
    """Import the modules; from now on this process forks wherever it would start its own Python."""
    inspect.stack = _stack
    subprocess.Popen = Popen  # type: ignore[misc] # before others take it from there by name
    for name in modules:
        importlib.import_module(name)
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, "a thread would be missing in every child"
    gc.collect()
    gc.freeze()  # what is never collected is never copied for that


def main() -> None:
    """Import the modules, then serve at the socket, which is given by its number."""
    preload(sys.argv[2].split(","))
    Popen.fresh = Fresh(path=tuple(sys.path[1:]))
    Server(Popen.fresh, socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
