"""The command `collect`: what the owner of a host can send to a helper, masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.look import Unanswered, answer
from pyinfra_gpu.engine.privilege import as_declared_owner, as_root
from pyinfra_gpu.errors import SECRET_NAME, masked
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import of_hosts
from pyinfra_gpu.report.check.running import Request, ask, run_program
from pyinfra_gpu.text import shortened, without_escapes
from pyinfra_gpu.whole_file import replacing

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_MARK = "====="  # before the heading of each item in what a host prints
_EVERYBODYS = {"root", "localhost", "nobody", "gpu", "debian", "ubuntu"}
_ABSENT = {"n/a", "[n/a]", "none", "no", "yes", "true", "false", "null", "0"}
_HEX = "[0-9a-fA-F]"
_KEY = re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|\Z)", re.DOTALL)
_KINDS = (  # in this order; what is replaced is the last group, or all
    ("secret", r"\b(?:gh[opsu]_|github_pat_|glpat-|hf_|sk-|AKIA|xox[abprs]-)[\w-]{8,}"),
    ("secret", rf"(?i)[\w-]*(?:{SECRET_NAME.pattern})[\w-]*[\"']?\s*[=:]\s*[\"']?([^\s\"',;&]+)"),
    ("serial", r"(?im)^\s*(?:Serial Number|Board ID|Chassis[ \w]*Serial[ \w]*)\s*:\s*(\S+)"),
    ("user", ""),
    ("host", ""),
    ("uuid", rf"\b{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}\b"),
    ("mail", r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"),
    ("mac", rf"(?<![\w:])(?:{_HEX}{{2}}:){{5}}{_HEX}{{2}}(?![\w:])"),
    # Not a part of a version, which has four numbers too now and then (cuDNN's): a sign is beside.
    ("address", r"(?<![\w.+=~:-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.+~-])"),
    ("address", rf"(?<![\w:.]){_HEX}{{0,4}}:[0-9a-fA-F:]*:[0-9a-fA-F:]*(?![\w:])"),
)


@click.command(
    "collect", epilog="exit code: 0 everything was collected; 1 something could not be collected."
)
@of_hosts
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path("collected"), show_default=True,
    help="the folder for the files",
)  # fmt: skip
def command(request: Request, folder: Path) -> int:
    """Gather what hosts report, masked, to ask for help.

    Driver, packages and GPUs; read-only, one text file per host, in which names, addresses, serial
    numbers and secrets are replaced. Nothing is sent.
    """
    found, reasons = ask(request, gather)
    lines = [f"! {reason}" for reason in reasons]
    number = len(list(folder.glob("host-*.txt")))  # those of other hosts stay
    for name, said in found.items():
        if isinstance(said, Unanswered):
            lines.append(f"! {name}: {said.reason}")
            continue
        text, missing = said
        number += 1
        path = folder / f"host-{number}.txt"  # the host's name is not in it
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path, 0o600) as file:
                file.write(text.encode("utf-8", "surrogateescape"))
            lines.append(f"{name}: {path}")
        except OSError as error:
            missing = f"{path} cannot be written ({error.strerror})"
        lines += [f"! {name}: {missing}"] if missing else []
    lines.append("Nothing was sent. Read a file before you send it.")
    failed = any(line.startswith("! ") for line in lines)
    return show("\n".join(lines)) or int(failed)


def gather(state: State, host: Host, spec: HostSpec) -> tuple[str, str] | Unanswered:
    """Return what a host reports, masked, and what is missing."""
    seen, item = answer(state, host, spec), ("collect/item.sh",)
    if isinstance(seen, Unanswered) and seen.unreachable:
        return seen
    said: list[str | Unanswered] = [
        seen if isinstance(seen, Unanswered) else json.dumps(seen.to_json(), indent=1)
    ]
    for program, user in (
        (on_host.program("collect/system.sh", _MARK, uses=item), as_root(spec)),
        (on_host.program("packages/apt/collect.sh", _MARK, uses=item), as_root(spec)),
        (on_host.program("collect/owner.sh", _MARK, spec.paths.state), as_declared_owner(spec)),
    ):
        lines = run_program(state, host, program, user, seconds=deadlines.SERVICE)
        said.append(lines if isinstance(lines, Unanswered) else without_escapes("\n".join(lines)))
    reasons = dict.fromkeys(each.reason for each in said if isinstance(each, Unanswered))
    # In JSON a line break is a letter, and would hide the name behind it.
    text = "\n".join(e.replace("\\n", "\n") for e in said if isinstance(e, str)) + "\n"
    # The first item is the machine's own names, two lines, and the users that people log in as.
    own = text.partition("item names\n")[2].partition(f"\n{_MARK}")[0].split()
    called = [host.name, str(host.data.get("ssh_hostname") or ""), *own[:2]]
    hosts = {each for name in called for each in (name, name.split(".")[0])}
    users = [*own[2:], str(host.data.get("ssh_user") or ""), spec.owner or ""]
    return without_names(text, hosts, users), shortened("; ".join(reasons), 300)


def without_names(text: str, hosts: Iterable[str], users: Iterable[str]) -> str:
    """Return a text with names, addresses, serial numbers and secrets replaced.

    The same one is the same word wherever it stands, so that what is said still fits together.
    """
    words: dict[tuple[str, str], str] = {}

    def word(kind: str, found: re.Match[str]) -> str:
        value = found[found.lastindex or 0]
        kept = value.lower() in _ABSENT or value in words.values()
        if kept or (kind == "address" and not _is_of_one_machine(value)):
            return found[0]
        number = sum(each == kind for each, _ in words) + 1
        return found[0].removesuffix(value) + words.setdefault((kind, value), f"{kind}-{number}")

    named = {"host": _any_of(hosts), "user": _any_of(users)}
    text = _KEY.sub("(a private key)", masked(text))
    for kind, pattern in _KINDS:
        text = re.sub(pattern or named[kind], partial(word, kind), text)
    return text


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern of these names as words, the longest first; of none it matches nothing."""
    own = {name for name in names if len(name) > 1} - _EVERYBODYS
    words = "|".join(map(re.escape, sorted(own, key=len, reverse=True)))
    return rf"(?<![\w-])(?:{words})(?![\w-])" if own else r"(?!)"


def _is_of_one_machine(text: str) -> bool:
    """Tell an address from a time or a place on a bus, and from one that every machine has."""
    with suppress(ValueError):
        address = ip_address(text)
        return not (address.is_loopback or address.is_unspecified)
    return False
