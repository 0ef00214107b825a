"""What one host tells of itself: its record as it came, and what root and the owner can read."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyinfra.api.command import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, bounded_command, reach, request_text
from pyinfra_gpu.engine.privilege import as_declared_owner, as_root
from pyinfra_gpu.facts.record import RecordFact
from pyinfra_gpu.report.collect.masking import Masks, masked_fields
from pyinfra_gpu.text import shortened, without_escapes

if TYPE_CHECKING:
    from typing import Any

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

PROBE = "probe.txt"
_SYSTEM, _OWNER = "collect/system.sh", "collect/owner.sh"
_NAMES = "names"
_ITEM = re.compile(r"^item (?P<name>\S+) '(?P<command>.*)'$", re.MULTILINE)
_NAME = re.compile(r"[\w-][\w./-]{0,120}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What was gathered of one host, masked.

    + files: path in the archive -> text; masks: how many of each kind were replaced
    + reason: why there is nothing, or not all of it; None where all of it came
    """

    name: str
    files: dict[str, str] = field(default_factory=dict)
    masks: dict[str, int] = field(default_factory=dict)
    reason: str | None = None


def items() -> list[tuple[str, str]]:
    """Return what is asked of a host as root: name of each item, and its command."""
    text = on_host.text(_SYSTEM)
    return [(each["name"], each["command"]) for each in _ITEM.finditer(text)]


def gather(state: State, host: Host) -> Collected:
    """Ask one host; never raises."""
    try:
        with ctx_host.use(host):
            return _gathered(state, host, declared(host))
    except Exception as error:  # one host's failure is one host's failure
        reason = f"it could not be asked ({type(error).__name__}: {error})"
        return Collected(name=host.name, reason=shortened(reason, 300))


def _gathered(state: State, host: Host, spec: HostSpec) -> Collected:
    asking = _Asking(state, host, spec)
    probe = asking.ask(RecordFact().command(), {**as_root(spec), "_stdin": request_text(spec)})
    if isinstance(probe, Unanswered):
        return Collected(name=host.name, reason=probe.reason)
    mark = secrets.token_hex(8)
    system = asking.ask(_command(_SYSTEM, mark), as_root(spec))
    owner = asking.ask(_command(_OWNER, mark, spec.paths.state), as_declared_owner(spec))
    parts = {"system": system, "owner": owner}
    reasons = [said.reason for said in parts.values() if isinstance(said, Unanswered)]
    found = {
        f"{folder}/{name}": text
        for folder, said in parts.items()
        if not isinstance(said, Unanswered)
        for name, text in read_items(said, mark)
    }
    names = found.pop(f"system/{_NAMES}", "").split()
    masks = Masks(hosts=_hosts(host, names), users=_users(host, spec, names))
    files = {PROBE: "\n".join(masked_fields(probe, masks)) + "\n"}
    files |= {f"{path}.txt": masks.text(text) for path, text in found.items()}
    reason = shortened("; ".join(reasons), 300) or None
    return Collected(name=host.name, files=files, masks=masks.counts, reason=reason)


class _Asking:
    """The questions to one host, over one connection."""

    def __init__(self, state: State, host: Host, spec: HostSpec) -> None:
        self._state, self._host, self._spec = state, host, spec

    def ask(self, command: StringCommand, given: dict[str, Any]) -> list[str] | Unanswered:
        """Return the lines that a command prints, or why there are none."""
        seconds = deadlines.SERVICE

        def run() -> list[str]:
            _, output = bounded_command(self._state, self._host, command, given, seconds=seconds)
            return [without_escapes(line) for line in output.stdout_lines]

        return reach(self._host, run, seconds=seconds)


def _command(path: str, *arguments: str) -> StringCommand:
    return StringCommand(on_host.program(path, *arguments))


def read_items(lines: Sequence[str], mark: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each item between its two marks; the last may have been cut off."""
    name, text = "", list[str]()
    for line in lines:
        if line.startswith(f"{mark} "):
            if name and any(text):
                yield name, "\n".join(text).strip("\n") + "\n"
            kind, _, named = line.removeprefix(f"{mark} ").partition(" ")
            # A name is a file's below the owner's folder: it becomes a path in the archive.
            safe = _NAME.fullmatch(named) and ".." not in named.split("/")
            name, text = (named if kind == "item" and safe else ""), []
        elif name:
            text.append(line)
    if name and text:
        yield name, "\n".join([*text, "(cut off)"]).strip("\n") + "\n"


def _hosts(host: Host, names: list[str]) -> set[str]:
    """Return the names under which the machine is known; the first two lines are its own."""
    declared_name = str(host.data.get("ssh_hostname") or "")
    whole = {host.name, declared_name, *names[:2]}
    return {each for name in whole if name for each in (name, name.split(".")[0])}


def _users(host: Host, spec: HostSpec, names: list[str]) -> set[str]:
    login = str(host.data.get("ssh_user") or "")
    return {each for each in (login, spec.owner or "", *names[2:]) if each}
