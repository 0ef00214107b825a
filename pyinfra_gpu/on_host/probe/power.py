"""Who and what a restart would interrupt, from the files that systemd-logind keeps for its library.

Asked over D-Bus it could hang.
"""

from __future__ import annotations

import os
import re

from .files import Users, document
from .frame import Host, names, pairs

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from .frame import Facts


def facts(host: Host) -> Facts:
    """People at a terminal or a display, and locks that block a shutdown."""
    listed = host.asked["reboots"]
    return {
        "power.sessions": lambda: sessions(host),
        "power.inhibitors": lambda: inhibitors(host),
        "power.reboots": lambda: _reboots(document(host.at(listed)) if listed else None),
    }


def _kept(host: Host, kind: str) -> list[dict[str, str]]:
    folder = f"/run/systemd/{kind}"
    paths = (f"{folder}/{each}" for each in host.names(folder) if not each.endswith(".ref"))
    return [pairs(host.rows(each)) for each in filter(host.is_file, paths)]


def sessions(host: Host) -> list[str]:
    """Return e.g. "alice on pts/0"; a connection without a terminal, as ours, is none.

    logind knows the terminal of a session from utmp, which newer systems no longer have. A user
    with a session and a pseudo terminal is then taken to sit at it.
    """
    folder, users = host.at("/dev/pts"), Users()
    terminals: list[tuple[int, str]] = []
    for name in sorted((each for each in names(folder) if each.isdigit()), key=int):
        try:
            terminals.append((os.stat(f"{folder}/{name}").st_uid, f"pts/{name}"))
        except FileNotFoundError:
            continue
    if not host.is_dir("/run/systemd/sessions"):
        return [f"{users.name(uid)} on {terminal}" for uid, terminal in terminals]
    found: dict[str, None] = {}
    for each in _kept(host, "sessions"):
        if not each.get("CLASS", "").startswith("user"):
            continue
        tty, display = each.get("TTY", ""), each.get("DISPLAY", "")
        if each.get("TYPE") in ("wayland", "x11", "mir"):
            display = display or each.get("SEAT") or each["TYPE"]
        if each.get("STATE") == "closing":
            # Who logged out and left something running holds the terminal in name only.
            tty = display = ""
        theirs = (name for uid, name in terminals if str(uid) == each.get("UID"))
        if at := tty or display or next(theirs, ""):
            found[f"{each.get('USER') or each.get('UID')} on {at}"] = None
    return list(found)


def inhibitors(host: Host) -> list[str]:
    """Return e.g. "backup.service: nightly dump"."""
    found = []
    for each in _kept(host, "inhibit"):
        if each.get("MODE") == "block" and "shutdown" in each.get("WHAT", ""):
            why = each.get("WHY")
            told = each.get("WHO", "") + (f": {why}" if why else "")
            found.append(_unescaped(told) if "\\" in told or not told.isprintable() else told)
    return found


def _unescaped(text: str) -> str:
    r"""Return the text that systemd-logind notes as in C: `\"`, `\303\251`, `\x27`, `\n`.

    What would move a terminal's cursor becomes a question mark.
    """

    def plain(match: re.Match[bytes]) -> bytes:
        octal, digits, letter = match.groups()
        if octal or digits:
            return bytes([int(octal, 8) & 255 if octal else int(digits, 16)])
        return b"?" if letter in b"abfnrtv" else bytes(letter)

    raw = re.sub(rb"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))", plain, text.encode())
    return "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "backslashreplace"))


def _reboots(text: str | None) -> list[dict[str, object]]:
    """Return what each line "TIME BOOT_ID REASON" says; one that is damaged says nothing."""
    form = r"(?m)^(\d{1,12}) (\S{1,64}) (.+)$"
    found = re.findall(form, text or "", re.ASCII)
    return [{"at": int(at), "boot_id": boot, "reason": reason} for at, boot, reason in found]
