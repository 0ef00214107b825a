"""S4 on GPUs: which way NCCL's data really goes, and what NCCL chooses by itself, from its own log.

A wrong way is silent: all-reduce over the network stack of one host gives right results, only
far slower; peer-to-peer that a patched driver switched on may give wrong ones.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from .check import Facts, Want, fail, skip, warn
from .gpus import on_nvlink

_LARGEST = 8 * 2**20
"""Bytes of one file that are read; two ranks write some hundred lines."""

# "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01 : 1[c3000] -> 0[3000] via
# SHM/direct/direct comm 0x55..", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"; in the
# brackets is the device's number, in older NCCL its bus.
_CHANNEL = re.compile(
    r"Channel \d+(?:/\d+)? : \d+\[[0-9a-f]+\] -> \d+\[[0-9a-f]+\]"
    r" (?:\[(?:send|receive)\] )?via (?P<way>[A-Z][A-Za-z0-9]*(?:/[A-Za-z0-9_./]+)?)"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_INTERFACE = re.compile(r"(?:Bootstrap|NET/Socket)\s*:\s*Using (?:\[\d+\])?([^\s:]+):")


def read(directory: Path) -> dict[str, Any]:
    """Return what all ranks' NCCL logs in `directory` say. Never raises.

    `ways` counts the channels by way ("SHM/direct/direct"); `interfaces` are those by which NCCL's
    processes found each other.
    """
    texts = []
    for path in sorted(directory.glob("nccl.*.log")):
        try:
            with path.open("rb") as file:
                texts.append(file.read(_LARGEST).decode(errors="replace"))
        except OSError:
            continue
    text = "\n".join(texts)
    # Without the number of the network card: "NET/Socket/0" is "NET/Socket".
    ways = (re.sub(r"/\d+(?=/|$)", "", way.rstrip("./")) for way in _CHANNEL.findall(text))
    return {
        "logs": len(texts),
        "ways": dict(sorted(Counter(ways).items())),
        "versions": sorted(set(_VERSION.findall(text))),
        "interfaces": sorted(set(_INTERFACE.findall(text))),
    }


def ways(facts: Facts, want: Want) -> str:
    """Judge the way that NCCL's data took."""
    found = facts[0]["transport"]
    text, kinds = ", ".join(found["ways"]), {way.partition("/")[0] for way in found["ways"]}
    if want.ranks == 1:
        skip("one GPU: NCCL has nothing to carry")
    if not kinds:
        warn(f"NCCL's {found['logs']} logs name no channel")
    if "NET" in kinds:
        fail(f"data between GPUs of one host goes over the network ({text}): /dev/shm, cgroups")
    links = (want.gpu_host.get("links") or {}).values()
    if any(way.startswith("NV") for way in links) and "P2P" not in kinds:
        warn(f"the GPUs have NVLink, but NCCL uses {text}")
    names = " ".join(gpu["name"] for gpu in want.gpu_host.get("gpus", []))
    # From these NVIDIA's driver withholds PCIe peer-to-peer.
    if "P2P" in kinds and not on_nvlink(want) and re.search("GeForce|TITAN", names):
        warn(f"peer-to-peer ({text}) on GeForce: a patched driver, not NVIDIA's")
    return text


def own_choice(facts: Facts, _: Want) -> str:
    """Judge an all-reduce by NCCL's own choice of interface.

    The test tells NCCL to use the loopback interface. A first training run does not, and may
    meet a bridge of Docker's, a VPN, or a hostname that does not resolve."""
    found = facts[0]["own_choice"]
    by = ", ".join(found["interfaces"]) or "an interface that its log does not name"
    if found["result"] != "passed":
        detail = f"left to itself NCCL chose {by}, and an all-reduce {found['result']}"
        warn(f"{detail}: set NCCL_SOCKET_IFNAME for training; {found['why']}")
    return f"by {by}"
