"""Which environment variables a project's env file may hold, and why not the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from pyinfra_gpu.spec.types import Bad, like

LONGEST_VALUE = 4096  # characters

_RANKS = (
    "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "RANK", "ROLE_RANK", "WORLD_SIZE"
)  # fmt: skip

# Variable -> why it is not written: what PyTorch, NCCL, Python and the loader do with it.
FORBIDDEN: Mapping[str, str] = {
    "BASH_ENV": "every bash that runs a script would first run the file it names",
    "CUDA_VISIBLE_DEVICES": "the launcher chooses GPUs per job; here all jobs would get the same",
    "ENV": "every sh would first run the file it names",
    "HOME": "it belongs to the login, and torch, git and ssh keep their state below it",
    "LD_LIBRARY_PATH": (
        "it mixes the CUDA libraries of torch with those of the toolkit or finds a stub libcuda, "
        "and torch knows its libraries without it"
    ),
    "LD_PRELOAD": "it loads a library into every program of the project",
    "MASTER_PORT": "torchrun --standalone finds a free port, and a fixed one meets the next job's",
    "NCCL_ASYNC_ERROR_HANDLING": "it is an old name, and torchrun sets the new one by itself",
    "PATH": "it would hide the system's programs, and the torchrun wrapper needs none",
    "PYTHONHOME": "it makes every Python use the library of another Python",
    "PYTHONPATH": (
        "it goes before the virtual environment, so another torch can be imported "
        "than the one that was proven"
    ),
    "TORCHDYNAMO_DISABLE": "environment_dynamo = False writes it in the one form torch understands",
    "TORCHELASTIC_USE_AGENT_STORE": "torchrun overwrites it in every worker, so it does nothing",
    "TORCH_COMPILE": "torch does not read it, and environment_dynamo = False does what it promises",
    "TORCH_COMPILE_DISABLE": (
        "code compiled with fullgraph=True then raises instead of running, "
        "and environment_dynamo = False does not have that fault"
    ),
    "USE_LIBUV": "torchrun does not read it: its rendezvous always use libuv",
    **dict.fromkeys(
        ("NCCL_ALGO", "NCCL_PROTO"),
        "it forces one choice on all sizes and collectives, and some of them then fail or hang",
    ),
    **dict.fromkeys(
        _RANKS,
        "torchrun sets it for every rank and overwrites this one, "
        "while it misleads every program that runs without torchrun",
    ),
    "VIRTUAL_ENV": "the torchrun wrapper knows its virtual environment",
}

# Control characters of ASCII and of Latin 1 (U+0085 ends a line), the line and paragraph separators
# and what UTF-8 may not hold: for one of them systemd gives up the whole file.
_LAST_OF_PLANES = "".join(
    f"{chr(end - 2)}{chr(end - 1)}" for end in range(1 << 16, 0x110001, 1 << 16)
)
_UNREADABLE = re.compile(
    f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef{_LAST_OF_PLANES}]"
)


def _allowed(name: str) -> str:
    """Refuse the name of a variable that must not be set."""
    if name in FORBIDDEN:
        raise Bad(f"is not written because {FORBIDDEN[name]}", f"remove {name} from it")
    return name


def _readable(value: SecretStr) -> SecretStr:
    if _UNREADABLE.search(value.get_secret_value()):
        raise Bad("has a line break or another character which an env file cannot hold")
    return value


def _meant(found: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """Refuse values that do the opposite of what they seem to say."""
    texts = {name: secret.get_secret_value() for name, secret in found.items()}
    if {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} <= texts.keys():
        problem = "sets PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, and torch reads one"
        raise Bad(problem, "remove one of the two")
    name = "TORCHDYNAMO_SUPPRESS_ERRORS"
    if texts.get(name, "1").casefold() in ("0", "false", "no", "off"):
        problem = f"seems to switch {name} off, and torch takes any text for on"
        raise Bad(problem, f"remove {name} from it")
    name = "TRITON_LIBCUDA_PATH"
    if {"stubs", "compat"} & set(texts.get(name, "").split("/")):
        problem = f"points {name} into stubs or compat, where libcuda is not the driver's"
        raise Bad(problem, f"remove {name}, or name the folder of the driver's libcuda.so.1")
    return dict(sorted(found.items()))


Variable = Annotated[str, like("[A-Za-z_][A-Za-z0-9_]*"), AfterValidator(_allowed)]
Value = Annotated[SecretStr, Field(max_length=LONGEST_VALUE), AfterValidator(_readable)]
Variables = Annotated[dict[Variable, Value], AfterValidator(_meant)]
