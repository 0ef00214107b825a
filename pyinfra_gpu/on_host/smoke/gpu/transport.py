"""Which way NCCL's data really goes, from NCCL's own log.

A wrong way is silent: all-reduce over the network stack of one host gives right results, only
far slower; peer-to-peer that a patched driver switched on may give wrong ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_FILES = "nccl.*.log"
_LARGEST = 8 * 2**20
"""Bytes of one file that are read; two ranks write some hundred lines."""

# "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01 : 1[c3000] -> 0[3000] via
# SHM/direct/direct comm 0x55..", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"; in the
# brackets is the device's number, in older NCCL its bus. RCCL and old versions say "Ring 00".
_CHANNEL = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (?P<source>\d+)\[[0-9a-f]+\] -> (?P<target>\d+)\[[0-9a-f]+\]"
    r" (?:\[(?:send|receive)\] )?via (?P<way>[A-Z][A-Za-z0-9]*(?:/[A-Za-z0-9_./]+)?)"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+\.\d+)")
_NETWORK = re.compile(r"Using network (?P<name>\S+)")


def environment(directory: Path) -> dict[str, str]:
    """Return the variables with which every rank's NCCL logs its choices into `directory`."""
    return {
        "NCCL_DEBUG": "INFO",
        # P2P, SHM and NET print a line a channel; TUNING or COLL would print one a call
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,P2P,SHM,NET,GRAPH",
        "NCCL_DEBUG_FILE": str(directory / "nccl.%h.%p.log"),
    }


def read(directory: Path) -> dict[str, Any]:
    """Return the fact `transport` from all ranks' logs in `directory`. Never raises."""
    texts = []
    for path in sorted(directory.glob(_FILES)):
        try:
            with path.open("rb") as file:
                texts.append(file.read(_LARGEST).decode(errors="replace"))
        except OSError:
            continue
    return parse(texts)


def parse(texts: Iterable[str]) -> dict[str, Any]:
    """Return what NCCL's logs say.

    `ways` counts the channels by way ("SHM/direct/direct"), `kinds` are their first parts
    ("P2P", "SHM", "NET", ...), sorted; both empty where no log names a channel.
    """
    ways: dict[str, int] = {}
    versions: set[str] = set()
    networks: set[str] = set()
    logs = 0
    for text in texts:
        logs += 1
        for found in _CHANNEL.finditer(text):
            way = _way(found["way"])
            ways[way] = ways.get(way, 0) + 1
        versions |= {found["version"] for found in _VERSION.finditer(text)}
        networks |= {found["name"] for found in _NETWORK.finditer(text)}
    return {
        "logs": logs,
        "kinds": sorted({way.partition("/")[0] for way in ways}),
        "ways": dict(sorted(ways.items())),
        "versions": sorted(versions),
        "networks": sorted(networks),
        "nvls": any("NVLS" in way for way in ways),
    }


def _way(text: str) -> str:
    """Return a way without the number of the network card: "NET/Socket/0" is "NET/Socket"."""
    return re.sub(r"/\d+(?=/|$)", "", text.rstrip("./"))
