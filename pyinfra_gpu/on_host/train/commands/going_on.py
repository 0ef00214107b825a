"""A run goes on: by `train resume`, or by itself after a reboot."""

from __future__ import annotations

import argparse
from dataclasses import replace

from .. import checks, claims, presets, resuming, units
from ..checkpoints import Checkpoint
from ..rundir import Document, Run
from ..site import Site
from . import asking, writing


def as_before(document: Document, request: Document) -> argparse.Namespace:
    """Return what was asked for at the start, as options; devices that are taken are waited for."""
    devices = list(request["devices"])
    return argparse.Namespace(
        gpus=None if devices == [claims.CPU] else ",".join(devices),
        queue=True,
        unproven=document["unproven"],
        retries=None,
    )


def go_on(site: Site, run: Run, point: Checkpoint | None, asked: argparse.Namespace) -> None:
    """Start a run again; raises TrainError where something is in the way.

    + point: from where; None: from the beginning
    """
    document, request = run.settled(), run.request()
    preset, ranks = presets.from_json(request["preset"]), int(request["ranks"])
    wanted, known = asking.wanted(
        site, asked, replace(preset, ranks=ranks), tuple(request["words"])
    )
    asking.refuse(checks.problems(site, wanted, known))
    units.ensure(site, preset.resume_after_reboot)
    retries = document["retries"] if asked.retries is None else asked.retries
    (run.folder / "refusal").unlink(missing_ok=True)
    run.ask(
        {
            **resuming.orders(site, run, request, point),
            "devices": list(wanted.devices),
            "queue": asked.queue,
            "retries": retries,
            "after_reboot": preset.resume_after_reboot,
        }
    )
    run.write({**document, "state": "starting", "waits": None, "retries": retries})
    writing.hand_over(run, document)
