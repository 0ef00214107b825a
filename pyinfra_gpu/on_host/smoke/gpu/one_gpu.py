"""Two ranks on one GPU: what NCCL needs to be told before it agrees to it.

NCCL refuses two ranks on one GPU. Up to 2.29 it compares host and bus; NCCL_HOSTID gives each
rank a host of its own, and the data then goes through the loopback interface. From 2.30 on
NCCL_MULTI_RANK_GPU_ENABLE=1 allows it (experimental, two ranks a GPU without further settings),
and the data keeps the way it would take between two GPUs of one host.
(NCCL source, init.cc; environment variables in its documentation.)

Both are rehearsals: no bandwidth is judged, and the test never proves a host of two GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

HOST_ID = "NCCL_HOSTID"
MULTI_RANK = "NCCL_MULTI_RANK_GPU_ENABLE"
_MULTI_RANK_SINCE = (2, 30)

_COMMON = {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "4"}  # both ranks share the same SMs
_OVER_LOOPBACK = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_MNNVL_ENABLE": "0",
}


def route(version: Sequence[int] | None) -> str:
    """Return the name of the variable that lets this NCCL have two ranks on a GPU."""
    known = tuple(version or ())[:2]
    return MULTI_RANK if known >= _MULTI_RANK_SINCE else HOST_ID


def environment(chosen: str, rank: int) -> dict[str, str]:
    """Return what to set in the process of `rank` before its first call of NCCL.

    + chosen: `route`'s answer; the other one may be tried where a run with it hangs
    """
    if chosen == MULTI_RANK:
        return {**_COMMON, MULTI_RANK: "1"}
    return {**_COMMON, **_OVER_LOOPBACK, HOST_ID: f"rehearsal-{rank}"}


NAMES = frozenset({*_COMMON, *_OVER_LOOPBACK, HOST_ID, MULTI_RANK})
"""Every variable this module may set, so that they are not taken for strays."""
