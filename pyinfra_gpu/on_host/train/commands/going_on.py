"""A run goes on: by `train resume`, or by itself after a reboot."""

from __future__ import annotations

import argparse
from dataclasses import replace

from .. import across, checks, claims, presets, resuming, units, unwritten
from ..across import Across
from ..checkpoints import Checkpoint
from ..checks import Asked
from ..presets import Preset
from ..rundir import Document, Run
from ..site import Site
from . import asking


def as_before(document: Document, request: Document) -> argparse.Namespace:
    """Return what was asked for at the start, as options; devices that are taken are waited for."""
    devices = list(request["devices"])
    return argparse.Namespace(
        gpus=None if devices == [claims.CPU] else ",".join(devices),
        queue=True,
        unproven=document["unproven"],
        retries=None,
    )


def checked(site: Site, run: Run, asked: argparse.Namespace) -> tuple[Asked, Preset]:
    """Return the start that lets a run go on; raises TrainError where something is in the way."""
    request = run.request()
    preset, ranks = presets.from_json(request["preset"]), int(request["ranks"])
    wanted, known = asking.wanted(
        site, asked, replace(preset, ranks=ranks), tuple(request["words"]), run.name
    )
    asking.refuse_across(wanted)
    asking.refuse(checks.problems(site, wanted, known))
    return wanted, preset


def go_on(
    site: Site,
    run: Run,
    point: Checkpoint | None,
    asked: argparse.Namespace,
    part: Across | None = None,
) -> None:
    """Write down that a run starts again; raises TrainError where something is in the way.

    + point: from where; None: from the beginning
    + part: this host's, in a run of several
    """
    document, request = run.settled(), run.request()
    wanted, preset = checked(site, run, asked)
    if part is not None:
        part = part if part.port else replace(part, port=across.free_port())
        request["across"] = part.as_json()
    after_reboot = preset.resume_after_reboot and part is None
    units.ensure(site, after_reboot)
    retries = document["retries"] if asked.retries is None else asked.retries
    (run.folder / "refusal").unlink(missing_ok=True)
    run.ask(
        {
            **resuming.orders(site, run, request, point),
            "devices": list(wanted.devices),
            "queue": asked.queue,
            "retries": retries,
            "after_reboot": after_reboot,
        }
    )
    run.write({**document, "state": "starting", "waits": None, "retries": retries})
    unwritten.drop(run.folder)
