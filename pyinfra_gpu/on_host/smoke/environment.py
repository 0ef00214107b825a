"""The environment variables that make a run something else than it seems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .options import REHEARSAL_CPU

_STRAYS = (
    # another library, another Python
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME"),
    # other collectives beside each one; and with "DETAIL" DDP over gloo crashes in torch 2.13
    "TORCH_DISTRIBUTED_DEBUG",
)
_STRAY_PREFIXES = ("NCCL_", "GLOO_", "TORCHELASTIC_", "TORCH_FR_", "TORCH_NCCL_")
_OF_CUDA = (
    # another choice or order of devices, another numerical mode, another way to launch
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
_OF_COMPILERS = ("TORCHINDUCTOR_", "TRITON_", "TORCH_COMPILE_DEBUG")
"""They say where and how compilers work, which the test says itself: removed without a word."""
OFF = {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1"}
"""The variables with which torch does not compile; torch takes "1" alone, and nothing else."""
_FOR_ALL = {
    "OMP_NUM_THREADS": "1",  # or the ranks fight for the cores they share
    # torch warns on import where numpy is not installed; nothing here needs it
    "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
    # compile in this process: a pool of workers may outlive it for a while
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # a torch in the user's home must not stand in for the environment's
    "PYTHONNOUSERSITE": "1",
}
_FOR_CPU = {
    # gloo otherwise resolves the hostname to choose its interface, which may take a name server's
    # time; all ranks are on this host
    "GLOO_SOCKET_IFNAME": "lo",
    # finding out which vector instructions the C++ compiler can use takes 10 s of compiling
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
}
_FOR_GPU = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # torch numbers the devices as nvidia-smi does
    # where NCCL's processes find each other; its own choice is tried once, see `links`
    "NCCL_SOCKET_IFNAME": "lo",
    # the flight recorder keeps the last collectives, and writes them down when it is asked to
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",  # its name before
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
RECORDINGS, PIPES = "recordings", "pipes"
"""Folders: where flight recorders write, a file a rank, and where they wait to be asked."""


def stray(environment: Mapping[str, str], mode: str = REHEARSAL_CPU) -> list[str]:
    """Return the variables that must not reach a smoke test in `mode`.

    They choose another library or another transport than the host would use; a result obtained with
    them says nothing about the next shell. Those that torchrun sets for ranks, it sets anyway.
    """
    names = (*_STRAYS, *(() if mode == REHEARSAL_CPU else _OF_CUDA))
    return sorted(n for n in environment if n in names or n.startswith(_STRAY_PREFIXES))


def clean(environment: Mapping[str, str], mode: str, *, compiling: bool = True) -> dict[str, str]:
    """Return `environment` as the processes of a test in `mode` need it.

    + compiling: whether torch.compile is meant to be used
    """
    strays = stray(environment, mode)
    kept = {
        name: value
        for name, value in environment.items()
        if name not in strays and not name.startswith(_OF_COMPILERS)
    }
    own = _FOR_CPU if mode == REHEARSAL_CPU else _FOR_GPU
    return {**kept, **_FOR_ALL, **own, **({} if compiling else OFF)}


def of_nccl(directory: Path) -> dict[str, str]:
    """Return the variables with which NCCL tells its choices, and its flight recorder what it
    holds, in files below `directory`.
    """
    recording = str(directory / RECORDINGS / "rank")
    return {
        "NCCL_DEBUG": "INFO",
        # P2P, SHM and NET print a line a channel; TUNING or COLL would print one a call
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,BOOTSTRAP,P2P,SHM,NET,GRAPH",
        "NCCL_DEBUG_FILE": str(directory / "nccl.%h.%p.log"),
        "TORCH_FR_DUMP_TEMP_FILE": recording,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": recording,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(directory / PIPES / "rank"),
    }
