"""Bringing back files of packages that are installed, and are not what the packages brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyinfra_gpu.engine import transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import quoted

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec


def again(state: State, host: Host, stage: str, spec: HostSpec, packages: Sequence[str]) -> bool:
    """Install packages again, by a guarded transaction; say why and fail where it cannot be.

    + packages: names of installed packages; with none there is nothing to do

    Each at the version it has: without one apt takes the newest on offer, and one package of the
    driver cannot move alone.
    """
    names = tuple(dict.fromkeys(packages))
    if not names:
        return True
    held = ask(state, host, quoted("apt-mark", "showhold", *names), as_root(spec)).stdout
    query = quoted(
        "dpkg-query", "-W", "-f", r"${Package}=${Version}\n${binary:Package}=${Version}\n"
    )
    rows = ask(state, host, f"{query} {quoted(*names)} 2>/dev/null", as_root(spec)).stdout
    there = {row.partition("=")[0]: row for row in rows if not row.endswith("=")}
    exact = tuple(there.get(name, name) for name in names)
    request = transaction.Request(stage=stage, spec=spec, packages=exact, reinstall=True)
    if not transaction.run(state, host, request):
        return False
    # apt takes what it was allowed to change off hold.
    return not held or ask(state, host, quoted("apt-mark", "hold", *held), as_root(spec)).ok


def owners(state: State, host: Host, spec: HostSpec, paths: Sequence[str]) -> list[str]:
    """Return the packages to which paths belong, as dpkg knows it; none for those of nobody."""
    query = f"{quoted('dpkg-query', '-S', *paths)} 2>/dev/null"
    return owners_in(ask(state, host, query, as_root(spec)).stdout)


def owners_in(lines: Sequence[str]) -> list[str]:
    """Return the packages that `dpkg-query -S` names: "libcuda1:amd64: /usr/lib/.../libcuda.so".

    A line "diversion by ..." names none.
    """
    found = []
    for line in lines:
        names, separator, path = line.partition(": ")
        if separator and path.startswith("/") and not names.startswith("diversion "):
            found += [name.strip() for name in names.split(",")]
    return found


def bereft(state: State, host: Host, spec: HostSpec, folder: str) -> list[str]:
    """Return the packages of which a file or folder below `folder` is gone."""
    query = (
        f"dpkg-query -S {quoted(f'{folder}/*')} 2>/dev/null | while IFS= read -r line; do"
        ' path=${line#*: }; [ -e "$path" ] || [ -L "$path" ] || printf "%s\\n" "$line"; done'
    )
    return list(dict.fromkeys(owners_in(ask(state, host, query, as_root(spec)).stdout)))
