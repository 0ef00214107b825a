"""What a run in the queue waits for, and who waits before it."""

from __future__ import annotations

from .. import claims
from ..rundir import Run
from ..site import Site


def waits_for(site: Site, run: Run) -> str:
    """Return what a queued run waits for, in words."""
    request = run.request()
    devices, ranks = request["devices"], int(request["ranks"])
    held = dict.fromkeys(claims.holders(site, devices).values())
    first = claims.ahead(site, run.name)
    what = "the CPU" if devices == [claims.CPU] else f"{ranks} of {len(devices)} GPUs"
    taken = f", taken by {', '.join(held)}" if held else ""
    turn = f"; {', '.join(first)} waited before it" if first else ""
    return f"it waits for {what}{taken}{turn}"
