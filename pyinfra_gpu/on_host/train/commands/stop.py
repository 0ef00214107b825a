"""`train stop`: the program is asked, then made to end, and nothing of it is left."""

from __future__ import annotations

from .. import rundir, units
from ..errors import TrainError
from ..site import Site

_BESIDE_S = 60  # what ending takes beside the grace


def stop(site: Site, name: str | None, *, across: bool = False) -> int:
    """Stop a run and wait until it has ended; return the exit code.

    + across: only a run of several hosts is meant
    """
    run = rundir.chosen(site, name, going=name is None, across=across)
    document = run.settled()
    if across and not document["across"]:
        raise TrainError(f"run {run.name} is of this host alone: leave out --across")
    if document["state"] == "ended":
        raise TrainError(f"run {run.name} has ended already: {rundir.outcome(document)}")
    # What somebody ended does not go on after the next boot; of a shutdown, which ends it as well,
    # it does.
    run.ask({**run.request(), "after_reboot": False})
    if rundir.waits_for_boot(document):
        run.write({**document, "state": "ended", "waits": None})
    else:
        units.stop(run.name, site.stop_grace_s + _BESIDE_S)
    became = rundir.outcome(run.settled())
    if document["state"] == "waiting" and became in ("failed", "lost"):
        became = f"waits no more, and stays {became}"
    print(f"{run.name} {became}")
    return 0
