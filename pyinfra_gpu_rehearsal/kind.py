"""What all throwaway hosts of a lab are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of hosts.

    + release: what runs on them where nothing else is asked for, a key of aptconfig.RELEASES;
      "" = this machine's own
    + packages: what their base image has beside the usual
    + wheels: requirements; with what they need they are what the lab's index has. None = torch,
      and nothing where there is none for another release's Python.
    """

    release: str = ""
    packages: tuple[str, ...] = ()
    wheels: tuple[str, ...] | None = None


USUAL = Kind()
"""Of this machine's own release, with torch."""
