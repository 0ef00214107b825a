"""The command `collect`: what the owner of a host can send to a helper, masked."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyinfra.api.command import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, bounded_command, reach, request_text
from pyinfra_gpu.engine.privilege import as_declared_owner, as_root
from pyinfra_gpu.errors import SECRET_NAME, masked
from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.parse import LONGEST
from pyinfra_gpu.facts.probe import RecordFact
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.report.check.running import visit
from pyinfra_gpu.text import shortened, without_escapes
from pyinfra_gpu.whole_file import replacing

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_PROGRAMS = ("collect/system.sh", "packages/apt/collect.sh")
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
Collected = tuple[str, dict[str, str], Counter[str], str]
"""Name of a host, name of a text -> text, how much of which kind was masked, what is missing."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``collect``."""
    parser = subparsers.add_parser(
        "collect",
        help="gather, masked, what hosts report of driver, packages and GPUs, to ask for help",
        description="Collect, read-only, how hosts are set up for their GPUs: one archive per"
        " host, in which names, addresses, serial numbers and secrets are replaced. Nothing is"
        " sent.",
        epilog="exit code: 0 everything was collected; 1 something could not be collected.",
    )
    add_request(parser)
    add, folder = parser.add_argument, Path("collected")
    text = "the folder for the archives; default: collected"
    add("--folder", type=Path, default=folder, help=text)
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Gather, write, list; return the exit code."""
    found: dict[str, Collected] = {}
    names, reasons = visit(request_of(options), gather, lambda one, _: found.update({one[0]: one}))
    lines = [f"! {reason}" for reason in reasons]
    first = len(list(options.folder.glob("host-*.tar.gz")))  # those of other hosts stay
    for number, name in enumerate(names, 1):
        _, texts, counts, reason = found[name]
        path = options.folder / f"host-{first + number}.tar.gz"
        replaced = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing"
        try:
            lines.append(f"{name}: {write(path, texts)}; replaced: {replaced}")
        except OSError as error:
            reason = f"{path} cannot be written ({error.strerror})"
        lines += [f"! {name}: {reason}"] if reason else []
    lines += ["Nothing was sent. Read an archive before you send it: tar -xOzf ARCHIVE | less"]
    failed = any(line.startswith("! ") for line in lines)
    return show("\n".join(lines), "collect") or int(failed)


def write(path: Path, texts: dict[str, str]) -> str:
    """Write a host's archive, readable by its owner alone; the host's name is not in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, 0o600) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in texts.items():
            data = text.encode("utf-8", "surrogateescape")
            entry = tarfile.TarInfo(f"{path.name.partition('.')[0]}/{name}.txt")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return f"{path} with {', '.join(texts) or 'nothing'}"


def gather(state: State, host: Host) -> Collected:
    """Ask one host; never raises."""
    print(f"asking {host.name} ...", file=sys.stderr)
    try:
        with ctx_host.use(host):
            return _gathered(state, host)
    except Exception as error:  # one host's failure is one host's failure
        reason = shortened(f"could not be asked ({type(error).__name__}: {error})", 300)
        return host.name, {}, Counter(), reason


def _gathered(state: State, host: Host) -> Collected:
    spec, seconds = declared(host), deadlines.SERVICE
    root = as_root(spec)
    asked: dict[str, tuple[StringCommand, dict[str, Any]]] = {
        "probe": (RecordFact().command(), {**root, "_stdin": request_text(spec)})
    }
    for path in _PROGRAMS:
        text = on_host.program(path, _MARK, uses=("collect/item.sh",))
        asked[path.partition(".")[0].replace("/", "-")] = StringCommand(text), root
    text = on_host.program("collect/owner.sh", _MARK, spec.paths.state)
    asked["owner"] = StringCommand(text), as_declared_owner(spec)
    texts: dict[str, str] = {}
    reasons: list[str] = []
    for name, (command, given) in asked.items():
        ask = partial(bounded_command, state, host, command, given, seconds=seconds)
        said = reach(host, ask, seconds=seconds)
        if isinstance(said, Unanswered):
            reasons.append(said.reason)
        else:
            texts[name] = "\n".join(map(readable, said[1].stdout_lines)) + "\n"
    # The first item is the machine's own names, two lines, and the users that people log in as.
    names = texts.get("collect-system", "").partition("item names\n")[2].partition(f"\n{_MARK}")[0]
    called = [host.name, str(host.data.get("ssh_hostname") or ""), *names.split()[:2]]
    hosts = {each for name in called for each in (name, name.split(".")[0])}
    users = [*names.split()[2:], str(host.data.get("ssh_user") or ""), spec.owner or ""]
    return host.name, *without_names(texts, hosts, users), shortened("; ".join(reasons), 300)


def readable(line: str) -> str:
    """Return a line as text; of what a look told, each fact has lines of its own."""
    try:
        told = document.loads(line, LONGEST) if line.startswith("{") else {}
    except ValueError:
        told = {}
    lines = [] if told else [without_escapes(line)]
    for key, each in told.items():
        plain = each if isinstance(each, str) else json.dumps(each)
        lines.append(readable(plain) if key == "owner" else f"{key} = {without_escapes(plain)}")
    return "\n".join(lines)


def without_names(
    texts: dict[str, str], hosts: Iterable[str], users: Iterable[str]
) -> tuple[dict[str, str], Counter[str]]:
    """Return the texts with names, addresses, serial numbers and secrets replaced, and how many.

    The same one is the same word in all texts of a host, so that they still fit together.
    """
    words: dict[tuple[str, str], str] = {}

    def word(kind: str, found: re.Match[str]) -> str:
        value = found[found.lastindex or 0]
        known = value.lower() in _ABSENT or value in words.values()
        if known or (kind == "address" and not _is_somebodys(value)):
            return found[0]
        number = sum(each == kind for each, _ in words) + 1
        return found[0].removesuffix(value) + words.setdefault((kind, value), f"{kind}-{number}")

    named = {"host": _any_of(hosts), "user": _any_of(users)}
    clean = {}
    for name, text in texts.items():
        clean[name] = _KEY.sub("(a private key)", masked(text))
        for kind, pattern in _KINDS:
            clean[name] = re.sub(pattern or named[kind], partial(word, kind), clean[name])
    return clean, Counter(kind for kind, _ in sorted(words))


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern of these names as words, the longest first; of none it matches nothing."""
    told = {name for name in names if len(name) > 1} - _EVERYBODYS
    words = "|".join(map(re.escape, sorted(told, key=len, reverse=True)))
    return rf"(?<![\w-])(?:{words})(?![\w-])" if told else r"(?!)"


def _is_somebodys(text: str) -> bool:
    """Tell an address from a time or a place on a bus, and from one that every machine has."""
    with suppress(ValueError):
        address = ip_address(text)
        return not (address.is_loopback or address.is_unspecified)
    return False
