"""NVIDIA's package repository: its key pinned, its packages held still, nobody else's let in."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import driver_repository as drift
from pyinfra_gpu.drift.driver_repository import MODE, Repository
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, step
from pyinfra_gpu.engine.transaction import update, wait_for_lock, why
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.packages import apt
from pyinfra_gpu.spec import system_files

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE


@converging(drift, repairs=drift.IDS)
def trusted(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that NVIDIA's repository is known by its pinned key, and the driver comes from it.

    + spec: the host's resolved specification

    The keyring package is fetched with its pinned SHA-256 and never installed: its own source list
    would point elsewhere. What it holds must be the pinned key and no other. Then come the pins,
    what keeps unattended-upgrades off, the blacklist of the free drivers, the source list, and a
    list of this repository alone. Another list that names the same repository is set aside, since
    nothing works where their keys differ.

    With ``driver_source = "distribution"`` the pins keep NVIDIA's drivers out, and NVIDIA's
    repository is there only for the toolkit.

    **Example:**

    .. code:: python

        driver_repository.trusted(name="Trust NVIDIA's repository", spec=wanted)
    """
    source = drift.trusted(spec, record)
    yield FunctionCommand(wait_for_lock, (STAGE, spec), {})
    if source and found.of(Id.DRIVER_KEYRING_REPLACED):
        yield FunctionCommand(_fetch_keyring, (spec, source), {})
    if source:
        yield from _alone(spec, record, source)
    for each in drift.declared(spec, record):
        if each.wrong(record):
            yield write(STAGE, each.file, as_root(spec))
    if found.of(Id.DRIVER_KEYRING_REPLACED, Id.DRIVER_SOURCE_DIFFERS):
        yield FunctionCommand(update, (STAGE, spec), {})


def _alone(spec: HostSpec, record: Record, source: Repository) -> Commands:
    for file in drift.twice(record, source):
        what, command = f"set {file} aside as {file}.disabled", apt.set_aside(file, source.url)
        yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.PLAIN)


def _fetch_keyring(state: State, host: Host, spec: HostSpec, source: Repository) -> bool:
    """Fetch the keyring, believe it only if it holds the pinned key alone, and put it in place."""
    url, command = apt.keyring_url(source.url), apt.keyring(source.url, source.keyring_sha256)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SIMULATION)
    if not answer.ok:
        reason = f"the keyring {url} cannot be used: {why(answer)}"
        return failed(host, STAGE, f"{host.name}: {reason}")
    try:
        keyring = base64.b64decode("".join(answer.stdout[-1:]), validate=True)
    except (ValueError, binascii.Error):
        reason = f"the keyring {url} came back unreadable: run again"
        return failed(host, STAGE, f"{host.name}: {reason}")
    keys = fingerprints(keyring)
    if keys != (source.key_fingerprint,):
        held = keys.reason if isinstance(keys, Unknown) else ", ".join(keys) or "no key"
        return failed(
            host,
            STAGE,
            f"{host.name}: {url} does not hold the key {source.key_fingerprint} alone, but {held}:"
            " find out who changed it before you trust it (`driver_key_fingerprint`)",
        )
    file = File(path=system_files.KEYRING, content=keyring, mode=MODE)
    return written(state, host, STAGE, file, as_root(spec))
