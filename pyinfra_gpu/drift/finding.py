"""One way in which a host is not as declared, in words a person can act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Effect = Literal["repair", "restart", "report", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """One deviation.

    + id: stage and name, e.g. "driver.module-differs"; stable, so that programs can go by it
    + found, expected: what is there and what should be, a few words each
    + effect: "repair": the next run mends it; "restart": the next run reloads the module or
      reboots, when nobody uses the GPUs; "report": we leave it alone, and `action` says why;
      "note": worth knowing and no drift, e.g. a proof from before the last reboot
    + action: what the next run does about it, or why it does nothing
    + command: what a person may run where we do nothing
    + packages: names of the packages whose history may tell since when, e.g. ("libcuda1",);
      a trailing * stands for any ending
    """

    id: str
    found: str
    expected: str
    effect: Effect
    action: str
    command: str | None = None
    packages: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The stage it belongs to."""
        return self.id.partition(".")[0]

    def sentence(self, host: str) -> str:
        """Say it in one sentence, with the remedy."""
        text = f"{host}: {self.found}; expected {self.expected}: {self.action}"
        return f"{text}: `{self.command}`" if self.command else text

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "id": self.id,
            "found": self.found,
            "expected": self.expected,
            "effect": self.effect,
            "action": self.action,
            "command": self.command,
            "packages": list(self.packages),
        }
