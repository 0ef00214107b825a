"""The environment variables that make a run something else than it seems."""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = ("NCCL_", "GLOO_", "TORCHELASTIC_")
_SEARCH_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME")
_RENDEZVOUS = (
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE"),
)
_FOR_CPU = {
    # gloo otherwise resolves the hostname to choose its interface, which fails, or takes a name
    # server's time, where the hostname does not resolve; all ranks are on this host
    "GLOO_SOCKET_IFNAME": "lo",
    # one thread a rank, or the ranks fight for the cores they share
    "OMP_NUM_THREADS": "1",
    # torch warns on import where numpy is not installed; nothing here needs it
    "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
    # a torch in the user's home must not stand in for the environment's
    "PYTHONNOUSERSITE": "1",
}


def stray(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in `environment` that must not reach a smoke test.

    They choose another library, another rendezvous or another transport than the host would
    use; a result obtained with them says nothing about the next shell.
    """
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) or name in _SEARCH_PATHS or name in _RENDEZVOUS
    }


def stray_in_rank(environment: Mapping[str, str]) -> list[str]:
    """Return the names of `stray` that neither torchrun nor the launcher has put there."""
    found = stray(environment)
    return [
        name
        for name in found
        if name not in (*_RENDEZVOUS, *_FOR_CPU) and not name.startswith("TORCHELASTIC_")
    ]


def for_cpu(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` as ranks on one host's CPU need it: without strays, with ours."""
    clean = {name: value for name, value in environment.items() if name not in stray(environment)}
    return {**clean, **_FOR_CPU}
