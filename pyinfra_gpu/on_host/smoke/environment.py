"""The environment variables that make a run something else than it seems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .options import REHEARSAL_CPU

_PREFIXES = ("NCCL_", "GLOO_", "TORCHELASTIC_")
_SEARCH_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME")
_RENDEZVOUS = (
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE"),
)
# other collectives beside each one; and with "DETAIL" DDP over gloo crashes in torch 2.13
_OF_TORCH = ("TORCH_DISTRIBUTED_DEBUG",)
_OF_CUDA = (
    # another choice or order of devices, another numerical mode, another way to launch
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
_OF_CUDA_PREFIX = "TORCH_NCCL_"
_FOR_ALL = {
    # one thread a rank, or the ranks fight for the cores they share
    "OMP_NUM_THREADS": "1",
    # torch warns on import where numpy is not installed; nothing here needs it
    "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
    # compile in this process: a pool of workers may outlive it for a while
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # a torch in the user's home must not stand in for the environment's
    "PYTHONNOUSERSITE": "1",
}
_FOR_CPU = {
    **_FOR_ALL,
    # gloo otherwise resolves the hostname to choose its interface, which fails, or takes a name
    # server's time, where the hostname does not resolve; all ranks are on this host
    "GLOO_SOCKET_IFNAME": "lo",
    # finding out which vector instructions the C++ compiler can use takes 10 s of compiling
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
}
_FOR_GPU = {
    **_FOR_ALL,
    # torch numbers the devices as nvidia-smi does
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    # the flight recorder keeps the last collectives, and writes them down when it is asked to
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    # where NCCL's processes find each other; a file such as /etc/nccl.conf may name an interface
    # that a test without any other network does not have
    "NCCL_SOCKET_IFNAME": "lo",
}
_LOGS = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
_RECORDER = ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")


def stray(environment: Mapping[str, str], mode: str = REHEARSAL_CPU) -> dict[str, str]:
    """Return the variables in `environment` that must not reach a smoke test in `mode`.

    They choose another library, another rendezvous or another transport than the host would
    use; a result obtained with them says nothing about the next shell.
    """
    gpu = mode != REHEARSAL_CPU
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES)
        or name in _SEARCH_PATHS
        or name in (*_RENDEZVOUS, *_OF_TORCH)
        or (gpu and (name in _OF_CUDA or name.startswith(_OF_CUDA_PREFIX)))
    }


def stray_in_rank(environment: Mapping[str, str], mode: str = REHEARSAL_CPU) -> list[str]:
    """Return the names of `stray` that neither torchrun nor the launcher has put there."""
    ours = [*_FOR_CPU] if mode == REHEARSAL_CPU else [*_FOR_GPU, *_LOGS, *_RECORDER]
    return [
        name
        for name in stray(environment, mode)
        if name not in (*_RENDEZVOUS, *ours) and not name.startswith("TORCHELASTIC_")
    ]


def clean(environment: Mapping[str, str], mode: str) -> dict[str, str]:
    """Return `environment` as the processes of a test in `mode` need it: without strays, with
    ours.
    """
    strays = stray(environment, mode)
    kept = {name: value for name, value in environment.items() if name not in strays}
    return {**kept, **(_FOR_CPU if mode == REHEARSAL_CPU else _FOR_GPU)}


def for_cpu(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` as ranks on CPUs need it: without strays, with ours."""
    return clean(environment, REHEARSAL_CPU)


def flight_recorder(directory: Path) -> dict[str, str]:
    """Return the variables with which the flight recorder writes below `directory` when asked."""
    files = (directory / "flight_recorder_", directory / "flight_recorder_ask_")
    return dict(zip(_RECORDER, map(str, files), strict=True))
