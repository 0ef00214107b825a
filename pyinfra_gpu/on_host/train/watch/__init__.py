"""Watching a run: on a terminal as a screen that is drawn anew, elsewhere as lines."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ...terminal import columns
from ..record import settled_run
from .plain import line
from .screen import HEIGHT, screen
from .state import Seen, Watched

LEFT, UNREADABLE, FAILED = 0, 1, 2

_PLAIN = ("dumb", "unknown")
_SCREEN_EVERY_S = 1.0
_LINE_EVERY_S = 10.0


def watch(run_directory: Path, *, plain: bool, once: bool) -> int:
    """Show a run until it ends or somebody leaves, and return the exit code.

    + plain: lines instead of a screen, as where standard output is no terminal
    + once: show it as it is now, and end

    0: it finished, was stopped, or goes on; 1: there is no run; 2: it failed.
    """
    run = settled_run(run_directory)
    if run is None:
        print(f"{run_directory} holds no run: `train list` names them", file=sys.stderr)
        return UNREADABLE
    watched = Watched(run_directory, run)
    try:
        if once:
            seen = watched.look()
            _print(seen, plain=plain)
        elif plain or not _is_terminal():
            seen = _lines(watched)
        else:
            seen = _screens(watched)
    except KeyboardInterrupt:
        print(f"\nthe run goes on: `train watch {run.name}` shows it again", file=sys.stderr)
        return LEFT
    return FAILED if seen.run.failed else LEFT


def _is_terminal() -> bool:
    """Tell whether a screen can be drawn; a terminal that is called dumb takes lines alone."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    drawn = os.environ.get("TERM", "").lower() not in _PLAIN
    return sys.stdout.isatty() and encoding == "utf8" and drawn


def _print(seen: Seen, *, plain: bool) -> None:
    if plain or not _is_terminal():
        print(line(seen), flush=True)
        return
    from rich.console import Console

    width = columns()
    Console(width=width, highlight=False).print(screen(seen, width))


def _lines(watched: Watched) -> Seen:
    """Print a line for what is new, but not more than every few seconds."""
    shown: tuple[int, str] | None = None
    printed = float("-inf")
    while True:
        seen = watched.look()
        now = (seen.history.lines, seen.run.state)
        due = time.monotonic() - printed >= _LINE_EVERY_S
        if seen.over or (now != shown and due):
            print(line(seen), flush=True)
            shown, printed = now, time.monotonic()
        if seen.over:
            return seen
        time.sleep(_SCREEN_EVERY_S)


def _screens(watched: Watched) -> Seen:
    """Draw the screen anew every second; at the end it stays to be read."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    seen = watched.look()
    height = min(HEIGHT, console.height)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not seen.over:
            live.update(screen(seen, console.width, console.height), refresh=True)
            time.sleep(_SCREEN_EVERY_S)
            seen = watched.look()
    console.print(screen(seen, console.width), height=height, crop=True)
    return seen
