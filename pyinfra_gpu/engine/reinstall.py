"""Bringing back files of packages that are installed, and are not what the packages brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_archive import from_nvidia
from pyinfra_gpu.engine import deadlines, transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.package_manager import manager_of
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.packages.names import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

    Versions = Mapping[str, str]

_KEYS = {"driver": "driver_version", "cuda": "cuda_version"}
"""Stage -> the key that asks for another version."""


def again(state: State, host: Host, stage: str, spec: HostSpec, packages: Sequence[str]) -> bool:
    """Install packages again, by a guarded transaction; say why and fail where it cannot be.

    + packages: names of installed packages; with none there is nothing to do

    Each at the version it has: without one the newest on offer is taken, and one package of the
    driver cannot move alone.
    """
    names = tuple(dict.fromkeys(packages))
    if not names:
        return True
    manager, root = manager_of(look(spec)), as_root(spec)
    there = manager.versions_in(
        ask(state, host, manager.versions(names), root, seconds=deadlines.SERVICE).stdout
    )
    if not transaction.update(state, host, stage, spec):
        return False
    if gone := _not_offered(state, host, stage, spec, names, there):
        return failed(host, stage, f"{host.name}: {gone}; nothing was changed")
    exact = tuple(manager.exact(name, there[name]) if name in there else name for name in names)
    request = transaction.Request(stage=stage, spec=spec, packages=exact, reinstall=True)
    return transaction.run(state, host, request)


def _not_offered(
    state: State, host: Host, stage: str, spec: HostSpec, names: Sequence[str], there: Versions
) -> str | None:
    """Say which package cannot be had again, since no source has its version, and what is left.

    The package manager itself passes such a one over, and ends well.
    """
    manager, root = manager_of(look(spec)), as_root(spec)
    command = manager.on_offer(names)
    offer = manager.on_offer_in(ask(state, host, command, root, seconds=deadlines.SERVICE).stdout)
    offered = {each: (*offer.get(each, ()), *offer.get(plain(each), ())) for each in names}
    lacking = [each for each in names if each in there and there[each] not in offered[each]]
    if not lacking:
        return None
    name = lacking[0]
    others = tuple(dict.fromkeys(offered[name]))
    known = f"on offer: {', '.join(others[:3])}" if others else "no version of it is on offer"
    key = _KEYS.get(stage)
    url = " (`driver_repository_url`)" if from_nvidia(spec) else ""
    choices = (
        f"declare `{key}` as one that is" if key and others else "",
        f"name a source that has it{url}",
        f"or bring its file back by hand (`{manager.offers_by_hand(name)}`)",
    )
    return (
        f"{name} {there[name]} has lost files and cannot be installed again, since no source offers"
        f" that version any more ({known}): {', '.join(each for each in choices if each)}"
    )


def owners(state: State, host: Host, spec: HostSpec, paths: Sequence[str]) -> list[str]:
    """Return the packages to which paths belong; none for those of nobody."""
    manager = manager_of(look(spec))
    return manager.owners_in(
        ask(state, host, manager.owners(paths), as_root(spec), seconds=deadlines.SERVICE).stdout
    )


def with_missing_files(state: State, host: Host, spec: HostSpec, folder: str) -> list[str]:
    """Return the packages of which a file or folder below `folder` is gone."""
    manager = manager_of(look(spec))
    lines = ask(
        state, host, manager.missing_files(folder), as_root(spec), seconds=deadlines.SERVICE
    ).stdout
    return list(dict.fromkeys(manager.owners_in(lines)))
