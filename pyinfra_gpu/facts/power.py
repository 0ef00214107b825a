"""Who and what a restart of the machine would interrupt."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class Reboot(Jsonable):
    """A reboot that we asked for: when, in seconds since 1970, in which boot, and what for."""

    at: int
    boot_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerRecord(Jsonable):
    """What stands against a restart, beside processes on the GPUs.

    + sessions: people at a terminal or a display, e.g. "alice on pts/0"; an SSH connection
      without a terminal, as ours, is none
    + inhibitors: locks that block a shutdown, e.g. "backup.service: nightly dump"
    + reboots: those that were asked for, and whose cause is not known to be gone
    """

    sessions: tuple[str, ...] | Unknown
    inhibitors: tuple[str, ...] | Unknown
    reboots: tuple[Reboot, ...] | Unknown


class Power(ConcernFact[PowerRecord]):
    """What a restart would interrupt: `pyinfra INVENTORY fact pyinfra_gpu.facts.power.Power`."""

    def read(self, fields: Fields) -> PowerRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> PowerRecord:
    """Sessions and locks, from the probe's fields."""
    if not_asked(fields):
        return PowerRecord(sessions=(), inhibitors=(), reboots=())
    sessions, locks = fields.items("power.session"), fields.items("power.inhibitor")
    return PowerRecord(
        sessions=sessions if isinstance(sessions, Unknown) else tuple(dict.fromkeys(sessions)),
        inhibitors=locks if isinstance(locks, Unknown) else tuple(map(_unescaped, locks)),
        reboots=_reboots(fields.document("power.reboots")),
    )


def _reboots(text: str | Unknown | None) -> tuple[Reboot, ...] | Unknown:
    """Return what each line "TIME BOOT_ID REASON" says; one that is damaged says nothing."""
    if isinstance(text, Unknown):
        return text
    found = re.findall(r"^(\d{1,12}) (\S{1,64}) (.+)$", text or "", re.MULTILINE | re.ASCII)
    return tuple(Reboot(at=int(at), boot_id=boot, reason=why) for at, boot, why in found)


def _unescaped(text: str) -> str:
    r"""The text that systemd-logind notes as in C: `\"`, `\303\251`, `\x27`, `\n`.

    What would move a terminal's cursor becomes a question mark.
    """

    def plain(match: re.Match[bytes]) -> bytes:
        octal, digits, letter = match.groups()
        if octal or digits:
            return bytes([int(octal, 8) & 255 if octal else int(digits, 16)])
        return b"?" if letter in b"abfnrtv" else bytes(letter)

    raw = re.sub(rb"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))", plain, text.encode())
    return "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "backslashreplace"))
