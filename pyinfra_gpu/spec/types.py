"""Types of single values, where a type of Python's or a range does not say what is allowed.

Pydantic checks them; what it cannot say raises Bad, a ValueError of pydantic's with a remedy.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    SecretStr,
    StringConstraints,
)

from pyinfra_gpu.errors import SECRET_NAME, nearest
from pyinfra_gpu.stacks import catalogue

LONGEST_LIST = 14  # names that an error lists before it only points at the nearest


class Bad(ValueError):  # noqa: N818 (it is raised for data, and caught in one place)
    """What is wrong with a value, as the clause that follows it; KEY in a remedy is the key."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


def refuse(pattern: str, problem: str, remedy: str = "") -> AfterValidator:
    """Return a check that refuses text in which a pattern finds something."""

    def check(value: str) -> str:
        if re.search(pattern, value):
            raise Bad(problem, remedy)
        return value

    return AfterValidator(check)


def like(pattern: str) -> StringConstraints:
    """Return the constraint that text is this pattern from its beginning to its end."""
    return StringConstraints(pattern=f"^({pattern})$")


def known(names: Collection[Any]) -> AfterValidator:
    """Return a check for one of `names`, which suggests the nearest."""
    by_text = {str(each): each for each in names}
    listed = f"none of {', '.join(by_text)}" if len(by_text) <= LONGEST_LIST else "not known"

    def check(value: Any) -> Any:
        if str(value) in by_text:
            return value
        close = nearest(str(value), by_text)
        raise Bad(f"is {listed}", f"set KEY = {by_text[close]!r}" if close else "")

    return AfterValidator(check)


def _printable(value: str) -> str:
    if not value or not value.isprintable():
        raise Bad("is empty or contains a line break or another character that cannot be printed")
    return value


Text = Annotated[str, AfterValidator(_printable)]
LOWER = AfterValidator(str.lower)


# --- names and versions ---

Branch = Annotated[int, known(catalogue().driver_branches)]
Commit = Annotated[
    Text,
    refuse(
        "^(?![0-9a-fA-F]{40}$)", "is no commit", "set KEY to what `git ls-remote URL main` prints"
    ),
    LOWER,
]
Compiler = Annotated[str, like(r"(gcc|clang)-[1-9]\d?")]
CudaRelease = Annotated[str, known(catalogue().cuda)]
Digest = Annotated[str, like("[0-9a-fA-F]{64}"), LOWER]
Fingerprint = Annotated[
    str, AfterValidator(lambda value: value.replace(" ", "").upper()), like("[0-9A-F]{40}")
]
GpuModel = Annotated[str, known(catalogue().gpus)]
Interpreter = Annotated[
    str,
    like(r"3\.\d{1,2}(\.\d{1,2})?|[A-Za-z][A-Za-z0-9._+-]*|(/\.?[A-Za-z0-9_+][A-Za-z0-9._+-]*)+"),
]
Name = Annotated[str, like("[a-z0-9][a-z0-9-]{0,39}")]
Owner = Annotated[str, like("[A-Za-z_][A-Za-z0-9_.-]{0,31}")]
StackName = Annotated[str, known(catalogue().stacks)]
PowerOfTwo = Annotated[int, known([1 << bits for bits in range(11)])]


# --- lists ---

_LIST, _SORTED = Field(strict=False), AfterValidator(lambda value: tuple(sorted({*value})))
Package = Annotated[
    Text,
    # A dash at the end of a name would ask for the package's removal.
    refuse("^(?![a-z0-9][a-z0-9+.-]*[a-z0-9+]$)", "is not the name of a package alone"),
    refuse(
        "^(lib)?(nvidia(?!-container)|cuda)",
        "is a package of driver or toolkit, which have stages of their own",
        "remove it; the keys driver_... and cuda_... say what is wanted",
    ),
]
Packages = Annotated[tuple[Package, ...], _LIST, _SORTED]


def times_ten(capability: object) -> int:
    """Return a compute capability as nvcc names it: 120 for "12.0"."""
    if not isinstance(capability, str) or not re.fullmatch("[0-9]{1,2}[.][0-9]", capability):
        raise Bad("is not a compute capability as text")
    return int(capability.replace(".", ""))


Archs = Annotated[tuple[Annotated[int, BeforeValidator(times_ten)], ...], _LIST, _SORTED]
Capabilities = Annotated[
    tuple[str, ...],
    _LIST,
    AfterValidator(lambda value: tuple(sorted({*value}, key=times_ten))),
]


def _on_or_text(value: object) -> object:
    return str(int(value)) if isinstance(value, int) and value in (0, 1) else value


_SET_BY_US = (
    "USE_(LIBUV|DISTRIBUTED|TENSORPIPE|CUDA|SYSTEM_LIBS|SYSTEM_TENSORPIPE)|(CMAKE_|TORCH_)?CUDA_ARCH.*"
    "|(FLASH_ATTENTION_)?MAX_JOBS|CMAKE_BUILD_PARALLEL_LEVEL|PYTORCH_BUILD_(VERSION|NUMBER)"
    "|CUDA_HOME|CUDACXX|CUDAHOSTCXX|CC|CXX|CMAKE_CX*_COMPILER"
)
Flags = Annotated[
    dict[
        Annotated[
            str,
            like("[A-Z][A-Z0-9_]{1,60}"),
            refuse(
                f"^({_SET_BY_US})$",
                "is what other keys say, or decides whether torch has libuv and CUDA",
                "remove it: see pytorch_archs, pytorch_build_memory_gib, pytorch_version,"
                " cuda_release and host_compiler",
            ),
        ],
        Annotated[str, BeforeValidator(_on_or_text), like("[A-Za-z0-9_.,+:;=/ -]{1,200}")],
    ],
    AfterValidator(lambda value: dict(sorted(value.items()))),
]
"""CMake's options and their values; True and False become 1 and 0."""


# --- environment variables ---

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
Value = Annotated[SecretStr, Field(max_length=4096), AfterValidator(_readable)]
Variables = Annotated[
    dict[Variable, Value], AfterValidator(lambda found: dict(sorted(found.items())))
]


# --- places ---


def _normal(path: str) -> str:
    return re.sub("^//", "/", posixpath.normpath(path))


_PART = r"(?:\.?[A-Za-z0-9_+@-][A-Za-z0-9._+@-]*)"  # of a path: neither . nor ..
Prefix = Annotated[
    str,
    like(f"/+({_PART}/+)*{_PART}?"),
    AfterValidator(_normal),
    # Linux reads 255 bytes of a script's first line, and we append up to 40.
    refuse("^.{201}", "is longer than 200 characters"),
    refuse(
        "^/((home|media|mnt|opt|root|srv|tmp|usr/local|var(/(cache|lib|opt|tmp))?|home/[^/]+)?)$"
        "|^/(bin|boot|dev|etc|lib(32|64|x32)?|lost[+]found|proc|run|sbin|snap|sys|usr(?!/local/)"
        "|var/(lib/(apt|dpkg)|log|run))(/|$)",
        "is a directory of the system's, or one that others use too",
    ),
]
RequirementsFile = Annotated[
    Text,
    refuse("^-", "starts with a dash and would be read as an option"),
    like(rf"({_PART}/+|\./+)*({_PART}\.txt|pyproject\.toml)"),
    AfterValidator(_normal),
]


def _no_secret(where: str) -> AfterValidator:
    """Return a check for a URL that holds none; `where` is the file on the host for them."""
    return refuse(
        # An SSH user is no secret; before an https host stands a token as often as a name.
        rf"^(?!ssh:)\w+://[^/]*@|://[^/@:]*:[^/@]*@|^[^/@:]+:[^/@]+@|[?&](?i:.*({SECRET_NAME.pattern}))",
        "contains a user, password or token, which would end up in logs",
        f"remove it from the URL and put it into {where} on the host",
    )


_HOST = r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9a-fA-F:]+\])(:\d{1,5})?"
_USER = "([A-Za-z0-9_][A-Za-z0-9_.-]*@)?"
_IN_APT = r"[A-Za-z0-9._~:%+\[\]/-]|\{distro\}|\{arch\}"
IndexUrl = Annotated[
    Text,
    _no_secret("~/.netrc"),
    like(rf"https?://{_HOST}(/[^#\s]*)?|file:///[^#\s]+"),
]
RepositoryUrl = Annotated[
    Text,
    _no_secret("/etc/apt/auth.conf.d"),
    # What stands in an apt source line without being read as its end, an option or a comment.
    like(rf"https?://{_HOST}(/({_IN_APT})*)?|file:///({_IN_APT})+"),
    AfterValidator(lambda value: value.rstrip("/")),
]
WheelsFolder = Annotated[
    Text,
    _no_secret("~/.netrc"),
    like(rf"https?://{_HOST}(/[^#\s]*)?|(/+{_PART})+/*"),
    AfterValidator(lambda value: value if "://" in value else posixpath.normpath(value)),
]
GitUrl = Annotated[
    Text,
    _no_secret("~/.netrc or git's credential store, or use an SSH key,"),
    # Neither an option nor, with two colons, a program for git to run.
    like(
        rf"(https?|git|ssh)://{_USER}{_HOST}/[^/\s]\S*|file:///\S+"
        rf"|{_USER}[A-Za-z0-9][A-Za-z0-9_.-]*:(/[^/\s]|[^:/\s])\S*"
    ),
]
"""What `git clone` accepts: https, http, ssh, git, file, user@host:path, alias:path."""


def _reachable(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise Bad("is not an IP address") from None
    if address.is_loopback or address.is_unspecified:
        raise Bad("is not an address that other hosts can reach")
    return value


def _switch_or_group(value: object) -> object:
    group = "(?!(true|false|yes|no)$)[a-z][a-z0-9_]{0,63}"
    if type(value) is bool or (type(value) is str and re.fullmatch(group, value, re.I | re.A)):
        return value
    raise Bad("is neither True, False nor the name of a group")


IpAddress = Annotated[str, AfterValidator(_reachable)]
Group = Annotated[bool | str, PlainValidator(_switch_or_group)]
