"""Which environment variables a project's env file may hold, and why not the others."""

from __future__ import annotations

import re
from collections.abc import Mapping


class Bad(ValueError):  # noqa: N818 (it is raised some sixty times)
    """What is wrong with a value.

    + suggestion: the value that was probably meant
    + remedy: what to do, where that is more than setting a value; KEY stands for the key
    + allowed: what is allowed, where the key's own description does not say it
    """

    def __init__(
        self,
        problem: str,
        *,
        suggestion: object = None,
        remedy: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.suggestion = problem, suggestion
        self.remedy, self.allowed = remedy, allowed


def kind(value: object) -> str:
    """Return what a value is, in words for a person who never saw Python's type names."""
    words: tuple[tuple[type, str], ...] = (
        (type(None), "nothing (None)"),
        (bool, "a yes/no value"),
        (int, "a whole number"),
        (float, "a number with a decimal point"),
        (str, "text"),
        (dict, "a dict"),
        (list, "a list"),
        (set, "a set"),
    )
    return next((word for type_, word in words if isinstance(value, type_)), type(value).__name__)


LONGEST_VALUE = 4096  # characters

_RANK = (
    "torchrun sets it for every rank and overwrites this one, "
    "while it misleads every program that runs without torchrun"
)
_NCCL = "it forces one choice on all sizes and collectives, and some of them then fail or hang"

# Variable -> why it is not written: what PyTorch, NCCL, Python and the loader do with it.
FORBIDDEN: Mapping[str, str] = {
    "BASH_ENV": "every bash that runs a script would first run the file it names",
    "CUDA_VISIBLE_DEVICES": "the launcher chooses GPUs per job; here all jobs would get the same",
    "ENV": "every sh would first run the file it names",
    "GROUP_RANK": _RANK,
    "HOME": "it belongs to the login, and torch, git and ssh keep their state below it",
    "LD_LIBRARY_PATH": (
        "it mixes the CUDA libraries of torch with those of the toolkit or finds a stub libcuda, "
        "and torch knows its libraries without it"
    ),
    "LD_PRELOAD": "it loads a library into every program of the project",
    "LOCAL_RANK": _RANK,
    "LOCAL_WORLD_SIZE": _RANK,
    "MASTER_ADDR": _RANK,
    "MASTER_PORT": "torchrun --standalone finds a free port, and a fixed one meets the next job's",
    "NCCL_ALGO": _NCCL,
    "NCCL_ASYNC_ERROR_HANDLING": "it is an old name, and torchrun sets the new one by itself",
    "NCCL_PROTO": _NCCL,
    "PATH": "it would hide the system's programs, and the torchrun wrapper needs none",
    "PYTHONHOME": "it makes every Python use the library of another Python",
    "PYTHONPATH": (
        "it goes before the virtual environment, so another torch can be imported "
        "than the one that was proven"
    ),
    "RANK": _RANK,
    "ROLE_RANK": _RANK,
    "TORCHDYNAMO_DISABLE": "environment_dynamo = False writes it in the one form torch understands",
    "TORCHELASTIC_USE_AGENT_STORE": "torchrun overwrites it in every worker, so it does nothing",
    "TORCH_COMPILE": "torch does not read it, and environment_dynamo = False does what it promises",
    "TORCH_COMPILE_DISABLE": (
        "code compiled with fullgraph=True then raises instead of running, "
        "and environment_dynamo = False does not have that fault"
    ),
    "USE_LIBUV": "torchrun does not read it: its rendezvous always use libuv",
    "VIRTUAL_ENV": "the torchrun wrapper knows its virtual environment",
    "WORLD_SIZE": _RANK,
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variables(value: object) -> tuple[tuple[str, str], ...]:
    """Accept a dict of text to text with allowed names; return its items sorted by name."""
    if not isinstance(value, Mapping):
        raise Bad(f"is {kind(value)}, not a dict of names and texts")
    for number, (name, content) in enumerate(value.items(), 1):
        _check_name(name, number)
        _check_content(str(name), content)
        _check_meaning(str(name), str(content))
    if "PYTORCH_CUDA_ALLOC_CONF" in value and "PYTORCH_ALLOC_CONF" in value:
        raise Bad(
            "sets PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, and torch reads only the first",
            remedy="remove one of the two",
        )
    return tuple(sorted((str(name), str(content)) for name, content in value.items()))


def _check_name(name: object, number: int) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Bad(
            f"has a name that is not letters, digits and _, in its entry {number}",
            remedy="rename or remove that variable",
        )
    if name in FORBIDDEN:
        raise Bad(
            f"sets {name}, which is not written because {FORBIDDEN[name]}",
            remedy=f"remove {name} from it",
        )


def _check_content(name: str, content: object) -> None:
    if not isinstance(content, str):
        raise Bad(
            f"gives {name} {kind(content)}, not text",
            remedy=f"write it in quotes, {name!r}: 'TEXT'",
        )
    if any(_unreadable(ord(c)) for c in content):
        raise Bad(
            f"gives {name} a line break, NUL or another control character or no character at all, "
            "which an env file cannot hold",
            remedy=f"give {name} a value on one line, of printable characters",
        )
    if len(content) > LONGEST_VALUE:
        raise Bad(
            f"gives {name} {len(content)} characters, more than {LONGEST_VALUE}",
            remedy=f"put the content of {name} into a file and give the file's name",
        )


def _unreadable(code: int) -> bool:
    """Tell what systemd, a shell or a person's editor would not read back as it was written.

    Control characters of ASCII and of Latin 1 (U+0085 ends a line), the line and paragraph
    separators, and what UTF-8 may not hold: systemd gives up the whole file for one of them.
    """
    control = code < 32 or 127 <= code < 160 or code in (0x2028, 0x2029)
    return (
        control or 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    )


def _check_meaning(name: str, content: str) -> None:
    """Refuse values that do the opposite of what they seem to say."""
    off = content.casefold() in ("0", "false", "no", "off")
    if name == "TORCHDYNAMO_SUPPRESS_ERRORS" and off:
        raise Bad(
            f"sets {name} to {content!r}, which switches it on: torch takes any text for yes",
            remedy=f"remove {name} from it",
        )
    if name == "TRITON_LIBCUDA_PATH" and re.search(r"(^|/)(stubs|compat)(/|$)", content):
        raise Bad(
            f"points {name} into stubs or compat, where libcuda is not the driver's",
            remedy=f"remove {name}, or name the directory of the driver's libcuda.so.1",
        )
