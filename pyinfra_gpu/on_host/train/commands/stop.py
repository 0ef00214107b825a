"""`train stop`: the program is asked, then made to end, and nothing of it is left."""

from __future__ import annotations

import getpass
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .. import calling, rundir, saying, units
from ..errors import DamagedError, TrainError
from ..rundir import Document, Run
from ..site import Site

_BESIDE_S = 60  # what ending takes beside the grace
_MOMENT_S = 2.0  # that nobody need be told of


def stop(site: Site, name: str | None, *, across: bool = False) -> int:
    """Stop a run and wait until it has ended; return the exit code.

    + across: only a run of several hosts is meant
    """
    run = rundir.chosen(site, name, going=True, across=across)
    try:
        document = run.settled()
    except DamagedError:
        if not run.alive():
            raise
        units.stop(run.name, site.stop_grace_s + _BESIDE_S)
        print(f"{run.name} was ended; its record is damaged: see `train list`")
        return 0
    if across and not document["across"]:
        raise TrainError(f"run {run.name} is of this host alone: leave out --across")
    # What stands there may be wrong: on a full disk it could not be written that a run goes on.
    if document["state"] == "ended" and not units.active(run.name):
        raise TrainError(f"run {run.name} has ended already: {rundir.outcome(document)}")
    if document.get("across") and not across:
        saying.say(f"warning: {calling.said(_ends_all(run, document))}")
    _forget(run)
    if rundir.waits_for_boot(document):
        run.write({**document, "state": "ended", "waits": None})
    else:
        try:
            with _told_that_it_takes(run, site.stop_grace_s):
                end(site, run, _who())
        except KeyboardInterrupt:
            saying.say(f"\n{run.name} goes on ending: `train list` tells when it has")
            return 130
    became = _became(site, run)
    if document["state"] == "waiting" and became in ("failed", "lost"):
        became = f"waits no more, and stays {became}"
    print(f"{run.name} {became}")
    return 0


@contextmanager
def _told_that_it_takes(run: Run, grace_s: int) -> Iterator[None]:
    """Say how long it may take, where it takes longer than a moment."""
    text = f"{run.name} has up to {grace_s} s to end by itself, then it is killed ..."
    timer = threading.Timer(_MOMENT_S, saying.say, [text])
    timer.daemon = True
    if calling.caller() is None:  # the controller shows all of it at the end
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _became(site: Site, run: Run) -> str:
    """Return what became of a run, and whether it had to be killed."""
    document = run.settled()
    became = rundir.outcome(document)
    attempts = document["attempts"]
    if became == "stopped" and attempts and attempts[-1].get("exit") == -signal.SIGKILL:
        became += f", by SIGKILL: it had not ended within {site.stop_grace_s} s"
    return became


def end(site: Site, run: Run, who: str) -> None:
    """Have a run end, and write down by whom, for `why`; raises TrainError."""
    units.stop(run.name, site.stop_grace_s + _BESIDE_S)
    document = run.settled()
    attempts = document["attempts"]
    if attempts and attempts[-1]["outcome"] == "stopped":
        attempts[-1]["stopped_by"] = who
        with suppress(OSError):  # a full disk
            run.write(document)


def _forget(run: Run) -> None:
    """Have a run stay ended: what somebody ended does not go on after the next boot.

    Of a shutdown, which ends it as well, it does. A full disk keeps nobody from stopping a run.
    """
    request = run.request()
    if not request.get("after_reboot"):
        return
    try:
        run.ask({**request, "after_reboot": False})
    except OSError as error:
        saying.say(
            f"warning: it will go on after the next boot, since nothing can be written in"
            f" {run.folder} ({error.strerror}): stop it again when there is room"
        )


def _ends_all(run: Run, document: Document) -> str:
    together = document["across"]
    whole = calling.together("stop", rundir.group(run), run.name)
    return (
        f"{run.name} is a run of {', '.join(together)} together: the others' ranks lose these,"
        f" and it ends there too, as failed; {whole} stops it on all"
    )


def _who() -> str:
    """Return who stops it, and from where."""
    asked = calling.caller()
    if asked is not None:
        return f"{asked.who or 'somebody'}, from the controller"
    return f"{os.environ.get('SUDO_USER') or getpass.getuser()}, on this host"
