"""Which environment variables a project's env file may hold, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from pyinfra_gpu.spec.types import Bad, like

LONGEST_VALUE = 4096  # characters

FORBIDDEN: Mapping[str, str] = {
    **dict.fromkeys(("BASH_ENV", "ENV"), "every shell would first run the file it names"),
    **dict.fromkeys(
        ("GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "RANK", "ROLE_RANK",
         "TORCHELASTIC_USE_AGENT_STORE", "WORLD_SIZE"),
        "torchrun sets it for every rank, and it misleads programs that run without torchrun",
    ),
    **dict.fromkeys(
        ("NCCL_ALGO", "NCCL_PROTO"),
        "it forces one choice on all sizes and collectives, and some of them then fail or hang",
    ),
    **dict.fromkeys(
        ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE", "TORCH_COMPILE_DISABLE"),
        "environment_dynamo = False switches torch.compile off in the one form that never fails",
    ),
    **dict.fromkeys(
        ("HOME", "PATH", "PYTHONHOME", "VIRTUAL_ENV"),
        "it belongs to the login or to the virtual environment, and torchrun's wrapper knows both",
    ),
    "CUDA_VISIBLE_DEVICES": "the launcher chooses GPUs per job; here all jobs would get the same",
    "LD_LIBRARY_PATH":
        "it mixes the CUDA libraries of torch with those of the toolkit or finds a stub libcuda",
    "LD_PRELOAD": "it loads a library into every program of the project",
    "MASTER_PORT": "torchrun --standalone finds a free port, and a fixed one meets the next job's",
    "NCCL_ASYNC_ERROR_HANDLING": "it is an old name, and torchrun sets the new one by itself",
    "PYTHONPATH": "another torch could then be imported than the one that was proven",
    "USE_LIBUV": "torchrun does not read it: its rendezvous always use libuv",
}  # fmt: skip
"""Variable -> why it is not written: what PyTorch, NCCL, Python and the loader do with it."""


def _allowed(name: str) -> str:
    """Refuse the name of a variable that must not be set."""
    if name in FORBIDDEN:
        raise Bad(f"is not written because {FORBIDDEN[name]}", f"remove {name} from it")
    return name


def _readable(value: SecretStr) -> SecretStr:
    """Refuse what ends a line, and for what systemd gives up the whole file."""
    if not value.get_secret_value().isprintable():
        raise Bad("has a line break or another character which an env file cannot hold")
    return value


Variable = Annotated[str, like("[A-Za-z_][A-Za-z0-9_]*"), AfterValidator(_allowed)]
Value = Annotated[SecretStr, Field(max_length=LONGEST_VALUE), AfterValidator(_readable)]
Variables = Annotated[
    dict[Variable, Value], AfterValidator(lambda found: dict(sorted(found.items())))
]
