"""A step of a remedy: as it is typed in a shell, and as it is done about a run of the launcher.

A run is a unit of the user manager: what a shell exports does not reach it, its logs are kept, and
its interpreter and folders are known. Most steps are the same for both, or differ in a few words,
which stand between braces:

    {run}, {file}, ...       one of PLACES: a word that the run's record knows
    {export NAME=value}      a command about variables, which a run has where it was declared;
    {NAME=value}             in a shell it is typed as it stands
    {unset NAME NAME}
    {env | grep NAME}, {echo $NAME}
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

PLACES = ("file", "folder", "folders", "path", "preset", "python", "rank", "run", "unit")
"""What `{file}` and so on may be; in a shell, as where a run does not know it, it reads FILE."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNED = rf"{_NAME}=[^\s{{}}`$]+"  # no shell reads the value: what is to be expanded never is
_SET = rf"(?:export )?{_ASSIGNED}(?: {_ASSIGNED})*"
_UNSET = rf"unset {_NAME}(?: {_NAME})*"
_SHOWN = r"(?:env|echo) [^{}`]+"
_BRACES = re.compile(rf"\{{(?:(?P<place>[a-z]+)|(?P<command>{_SET}|{_UNSET}|{_SHOWN}))\}}")
_MEANT = re.compile(rf"\{{(?:[a-z]+\}}|(?:export|unset|env|echo) |{_NAME}=)")
_CHANGES = re.compile(rf"\{{(?:{_SET}|{_UNSET})\}}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step, in both forms; a form is empty where it does not apply."""

    shell: str = ""
    run: str = ""

    @property
    def in_shell(self) -> str:
        """The form for a shell as it is read there."""
        return filled(self.shell, lambda place: "", lambda command: f"`{command}`")

    @property
    def forms(self) -> tuple[str, ...]:
        """The texts as they were written."""
        return (self.shell, self.run)


def filled(text: str, word: Callable[[str], str], command: Callable[[str], str]) -> str:
    """Return a text with what its braces stand for.

    + word: returns a place's word, an empty one where it is not known
    + command: returns what stands for a command about variables
    """

    def stands_for(found: re.Match[str]) -> str:
        place = found["place"]
        if place is None:
            return command(found["command"])
        return word(place) or str(place).upper() if place in PLACES else found[0]

    return _BRACES.sub(stands_for, text)


def changes_variables(text: str) -> bool:
    """Tell whether a step sets variables, or drops some."""
    return _CHANGES.search(text) is not None


def misread(text: str) -> str:
    """Return the braces of a text that look like those of this module and are not; "" for none."""
    for meant in _MEANT.finditer(text):
        found = _BRACES.match(text, meant.start())
        if found is None or (found["place"] and found["place"] not in PLACES):
            return text[meant.start() : text.find("}", meant.start()) + 1 or None]
    return ""
