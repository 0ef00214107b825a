"""`train stop`: the program is asked, then made to end, and nothing of it is left."""

from __future__ import annotations

import getpass
import os
from contextlib import suppress

from .. import calling, rundir, saying, units
from ..errors import DamagedError, TrainError
from ..rundir import Document, Run
from ..site import Site

_BESIDE_S = 60  # what ending takes beside the grace


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
        end(site, run, _who())
    became = rundir.outcome(run.settled())
    if document["state"] == "waiting" and became in ("failed", "lost"):
        became = f"waits no more, and stays {became}"
    print(f"{run.name} {became}")
    return 0


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
