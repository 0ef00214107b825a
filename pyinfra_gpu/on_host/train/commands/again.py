"""`train again`: what the user manager runs after a boot. Runs whose preset asks for it go on.

It is a unit of its own, and not the runs': a run that waits for its host to be proven uses nothing,
so the deploy that proves the host need not wait for it.
"""

from __future__ import annotations

import time
from pathlib import Path

from .. import checks, resuming, rundir
from ..errors import BusyError, TrainError
from ..rundir import Document, Run
from ..site import Site
from . import going_on, writing

_LOOK_S = 10.0
_LONGEST = 400  # characters of what is waited for
_CUT_OFF = ("lost", "stopped", "not started")


def again(site: Site) -> int:
    """Let runs go on that the last shutdown cut off; return the exit code."""
    until = rundir.later(site.reboot_wait_s)
    waiting = [run for run in rundir.all_runs(site) if _asks(run)]
    for run in waiting:
        _wait(run, "the first look at this host", until)
    while waiting and rundir.now() < until:
        waiting = [run for run in waiting if _still_waits(site, run, until)]
        if waiting:
            time.sleep(_LOOK_S)
    for run in waiting:
        run.ask({**run.request(), "after_reboot": False})
        run.write({**run.read(), "state": "ended"})  # with what it waited for, in vain
    return 0


def _asks(run: Run) -> bool:
    """Tell whether a run was cut off by a shutdown, and is to go on."""
    try:
        document = run.settled()
        if not run.request().get("after_reboot"):
            return False
    except (TrainError, OSError, ValueError):
        return False
    if rundir.waits_for_boot(document):
        return True
    return rundir.outcome(document) in _CUT_OFF and not _of_this_boot(document)


def _of_this_boot(document: Document) -> bool:
    attempts = document["attempts"]
    if attempts:
        return bool(attempts[-1]["boot_id"] == rundir.boot_id())
    return bool(document["created"] > rundir.later(-_uptime()))


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])


def _wait(run: Run, reason: str, until: str) -> None:
    waits = {"after": "reboot", "for": reason[:_LONGEST], "until": until}
    document = run.read()
    if (document["state"], document["waits"]) != ("waiting", waits):
        run.write({**document, "state": "waiting", "waits": waits})


def _still_waits(site: Site, run: Run, until: str) -> bool:
    """Let a run go on if it can; return whether it has to wait further."""
    try:
        with run.going_on():
            return _looked_at(site, run, until)
    except BusyError:
        return True  # somebody resumes it: the next look tells what became of that


def _looked_at(site: Site, run: Run, until: str) -> bool:
    document = run.settled()
    if document["state"] != "waiting":
        return False  # somebody stopped it, or let it go on
    found = () if document["unproven"] else tuple(checks.proven(site))
    if found:
        _wait(run, f"{found[0].what}: {found[0].remedy}", until)
        return True
    request = run.request()
    point = resuming.newest(run, request, document["created"])
    try:
        going_on.go_on(site, run, point, going_on.as_before(document, request))
        writing.hand_over(run, document)
    except TrainError as error:
        _wait(run, " ".join(str(error).split()), until)
        return True
    return False
