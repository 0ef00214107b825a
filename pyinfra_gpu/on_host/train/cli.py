"""The command line of `train`, and what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click
from click.shell_completion import get_completion_class

from ..terminal import columns, table
from . import host, presets, runs, starting, views
from .host import NoRunError, TrainError
from .metrics import sampled
from .runs import Run

_SHOWN = 20
_CURVES, _POINTS = 5, 120


def main(words: Sequence[str]) -> int:
    """Do what the words say; return 0 done, 1 refused, 2 a mistake in the words, 130 Ctrl-C."""
    os.umask(0o077)
    at = words.index("--") if "--" in words else len(words)
    own, further = [*words[:at]], [*words[at + 1 :]]
    try:
        if further and own[:1] != ["start"]:
            raise click.UsageError("nothing goes behind -- but what `train start` gives a program")
        code = train.main(own, "train", standalone_mode=False, obj=further)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return int(error.exit_code)
    except click.ClickException as error:
        starting.say(f"train: {error.format_message()}")
        return 2
    except TrainError as error:
        if isinstance(error, NoRunError) and host.from_controller():
            print(json.dumps({"no_run": str(error)}))
        starting.say(str(error))
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # `train list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        what = f": {error.filename}" if error.filename else ""
        starting.say(f"train cannot go on{what}: {error.strerror}")
    return 1


# -- what a shell completes, and options of several commands


def _offers(words: Callable[[host.Site], Iterable[str]]) -> Any:
    """Return what offers words; none where the host cannot be asked."""

    def offers(context: click.Context, parameter: object, begun: str) -> list[str]:
        with contextlib.suppress(TrainError, OSError):
            return [word for word in words(host.load()) if word.startswith(begun)]
        return []

    return offers


_presets = _offers(lambda site: site.presets)
_runs = _offers(lambda site: runs.names(site)[:-50:-1])


_RUN = click.argument("run", required=False, metavar="[RUN]", shell_complete=_runs)
_SET = click.option(
    "--set", "settings", multiple=True, metavar="K=V",
    help="Another value of an argument; may be given again for others.",
)  # fmt: skip
_COUNT = click.IntRange(0, 999)
_JSON = click.option("--json", "as_json", is_flag=True, help="As one document.")
_PART = click.option("--part", hidden=True, callback=lambda *given: starting.part_of(given[-1]))


def _shared(command: Any) -> Any:
    """Add the options of all that start something."""
    for option in (
        click.option("--gpus", metavar="0,1", help="Indices or UUIDs; default: all."),
        click.option("--queue", is_flag=True, help="Wait for busy GPUs."),
        click.option("--unproven", is_flag=True, help="Start without a valid smoke test."),
    ):
        command = option(command)
    return command


# -- the commands


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def train() -> None:
    """Start, follow, stop and resume training runs on this host."""


@train.command("start", epilog="What stands behind -- goes to the program: -- ARGS.")
@click.argument("preset", required=False, metavar="[PRESET]", shell_complete=_presets)
@_SET
@click.option("--dry", is_flag=True, help="Print the command and start nothing.")
@click.option("--like", metavar="RUN", shell_complete=_runs, help="Repeat this run.")
@click.option("--retries", type=_COUNT, default=0, help="Retry after temporary failures.")
@_PART
@_shared
@click.pass_obj
def _start(words: list[str], /, preset: str | None, like: str | None, **given: Any) -> int:
    """Check everything, start a run, and leave it to itself."""
    if like and preset:
        raise click.UsageError(f"--like {like} has a preset of its own: leave out {preset}")
    return starting.start(host.load(), preset, words, like=like, **given)


@train.command("try")
@click.argument("names", nargs=-1, metavar="[PRESET]...", shell_complete=_presets)
@_SET
@click.option("--seconds", type=click.IntRange(1, 999999), default=600, show_default=True)
@_shared
def _try(names: tuple[str, ...], **given: Any) -> int:
    """Take a few steps of presets: do they fit, and how fast are they?"""
    site, rows = host.load(), []
    known = [name for name, each in site.presets.items() if each.get("try_with")]
    for name in dict.fromkeys(names or known or [*site.presets][:1]):
        try:
            run, memory = starting.tried(site, name, **given)
            speed = views.words(run.history.last).get("speed", "-")
            rows.append([name, run.outcome, memory, speed])
        except TrainError as error:
            starting.say(f"{name}: {error}")
            rows.append([name, "not tried", "-", "-"])
    _print(["preset", "state", "peak memory", "speed"], rows)
    return 0 if rows and all(row[1] == "finished" for row in rows) else 1


@train.command("resume")
@_RUN
@click.option("--dry", is_flag=True, help="Say from where, and start nothing.")
@click.option("--retries", type=_COUNT, default=None, help="Default: as before.")
@_PART
@_shared
def _resume(run: str | None, unproven: bool, **given: Any) -> int:
    """Let a run go on from its newest complete checkpoint."""
    return starting.resume(host.load(), run, unproven=unproven or None, **given)


@train.command("stop")
@_RUN
@click.option("--across", is_flag=True, hidden=True)  # by the controller
def _stop(run: str | None, across: bool) -> int:
    """End a run, with all that it started."""
    return starting.stop(host.load(), run, across=across)


@train.command("list")
@_JSON
def _list(as_json: bool) -> int:
    """Show the last twenty runs of this host, and those that run or failed recently."""
    site = host.load()
    known = runs.all_of(site)
    failed = runs.unresolved(known)
    newest = known[-_SHOWN:]
    shown = [run for run in known if run in newest or not run.over or run.run in failed]
    if as_json:
        documents = [{**views.document(run), "unresolved": run.run in failed} for run in shown]
        for run, each in [*zip(shown, documents, strict=True)][-_CURVES:]:
            each["losses"] = sampled(run.history.losses, _POINTS)
        print(json.dumps({"schema": 1, "runs": documents}))
        return 0
    if not shown:
        print(f"there is no run yet: {runs.begin_one(site)}")
    _print(["run", "state", "step", "loss", "devices"], [*map(_row, shown)])
    return 0


def _row(run: Run) -> list[str]:
    words, state = views.words(run.history.last), run.outcome + ", a try" * run.trial
    on = "CPU" if run.gpus == [host.CPU] else f"{len(run.gpus)} GPU" if run.gpus else ""
    return [each or "-" for each in (run.run, state, words.get("step"), words.get("loss"), on)]


def _print(head: list[str], rows: list[list[str]]) -> None:
    for line in table(head, rows, columns()):
        print(line)


@train.command("presets")
def _declared() -> int:
    """Show what can be started here."""
    site, rows = host.load(), []
    for name in site.presets:
        preset = presets.chosen(site, name)
        words = presets.argument_words(preset.arguments, {})
        rows.append([name, preset.file or preset.module or "", " ".join(words)])
    _print(["preset", "program", "arguments"], rows)
    return 0


@train.command("watch")
@_RUN
@click.option("--once", is_flag=True, help="As it is now, and no longer.")
def _watch(run: str | None, once: bool) -> int:
    """Show a run as it goes: steps, loss, speed, GPUs."""
    return views.watch(runs.chosen(host.load(), run).folder, once=once)


@train.command("why")
@_RUN
@_JSON
def _why(run: str | None, as_json: bool) -> int:
    """Say why a run failed, and what to do."""
    site = host.load()
    found = views.explain(site, runs.chosen(site, run))
    print(json.dumps(asdict(found)) if as_json else found.text(columns()))
    return 0


@train.command("logs")
@_RUN
@click.option("-f", "--follow", is_flag=True, help="And what it prints from now on.")
@click.option("--rank", type=click.IntRange(0, 99999), default=0, show_default=True)
@click.option("--launcher", is_flag=True, help="What torchrun itself printed.")
@click.option("--attempt", type=click.IntRange(1), help="Default: the last.")
def _logs(run: str | None, follow: bool, rank: int, launcher: bool, attempt: int | None) -> int:
    """Print what a rank printed."""
    chosen = runs.chosen(host.load(), run)
    name = "launcher.log" if launcher else f"rank{rank}.log"
    path = chosen.attempt(attempt) / name
    if not path.exists() and not follow:
        known = ", ".join(sorted(each.name for each in path.parent.glob("*.log"))) or "no logs"
        raise TrainError(f"run {chosen.run} has no {name}: attempt {path.parent.name} has {known}")
    _printed(chosen, attempt, name, follow)
    return 0


def _printed(run: Run, attempt: int | None, name: str, follow: bool) -> None:
    """Print a log, as it grows if asked to; a rotated file is read to its end before the next."""
    out, file = sys.stdout.buffer, None
    for rotated in sorted(run.attempt(attempt).glob(f"{name}.[0-9]*"), reverse=True):
        out.write(rotated.read_bytes())
    while True:
        run = runs.read(run.folder)
        log = run.attempt(attempt) / name
        same = file and log.exists() and os.path.samestat(os.fstat(file.fileno()), log.stat())
        if file:
            shutil.copyfileobj(file, out)
        if log.exists() and not same:
            file = log.open("rb")
            shutil.copyfileobj(file, out)
        sys.stdout.flush()
        if not follow:
            return
        if run.over:
            starting.say(f"run {run.run} has ended: {run.outcome}")
            return
        time.sleep(0.5)


@train.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def _completion(shell: str) -> int:
    """Print what lets a shell complete this program's words."""
    found = get_completion_class(shell)
    if found is not None:
        print(found(train, {}, "train", "_TRAIN_COMPLETE").source())
    return 0


@train.command("again", hidden=True)
def _again() -> int:
    """Let runs go on that a reboot cut off; by the unit of a boot."""
    return starting.again(host.load())


@train.command("supervise", hidden=True)
@click.argument("run")
def _supervise(run: str) -> int:
    """Go through an attempt of a run; by its unit."""
    from .supervise import supervise

    return supervise(host.load(), run)
