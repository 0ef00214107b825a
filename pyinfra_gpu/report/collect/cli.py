"""The verb `collect` of the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.report.check.running import visit
from pyinfra_gpu.report.collect import archive
from pyinfra_gpu.report.collect.gathering import Collected, gather, items
from pyinfra_gpu.text import command, labelled, wrapped

_EPILOG = "exit code: 0 all was gathered; 1 something could not be."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``collect``."""
    parser = subparsers.add_parser(
        "collect",
        help="gather what a host's driver, packages and GPUs say, masked, to send to a helper",
        description="Gather what says how hosts are set up for their GPUs, read-only: one archive"
        " per host, in which names, addresses, numbers of devices and secrets are replaced."
        " Nothing is sent anywhere.",
        epilog=_EPILOG,
    )
    add_request(parser)
    parser.add_argument(
        "--folder", type=Path, default=Path("collected"), help="where to write; default: collected"
    )
    parser.add_argument(
        "--commands", action="store_true", help="only print what would be asked, and ask nothing"
    )
    parser.add_argument(
        "--fixture",
        action="store_true",
        help="INVENTORY is an archive: print the record in it as a fixture of the tests",
    )
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Gather, write, list; return the exit code."""
    if options.commands:
        return show(_asked(), "collect")
    if options.fixture:
        try:
            return show(archive.fixture(Path(options.inventory)), "collect")
        except archive.ArchiveError as error:
            return _failed(str(error))
    found: dict[str, Collected] = {}

    def arrived(host: Collected, names: Sequence[str]) -> None:
        found[host.name] = host
        print(f"{host.name}: {len(found)} of {len(names)}", file=sys.stderr)

    names, reasons = visit(request_of(options), gather, arrived)
    if reasons:
        return _failed("; ".join(reasons))
    hosts = [found[name] for name in names]
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        paths = [
            archive.write(options.folder, number, host, written) if host.files else None
            for number, host in enumerate(hosts, 1)
        ]
    except OSError as error:
        return _failed(f"{options.folder} cannot be written ({error}): choose another --folder")
    code = show(_listed(hosts, paths), "collect")
    return code or (1 if any(host.reason for host in hosts) else 0)


def _failed(reason: str) -> int:
    print("\n".join(wrapped(f"pyinfra-gpu collect: {reason}")), file=sys.stderr)
    return 1


def _asked() -> str:
    """Return every command that root runs on a host, and what else is read."""
    lines = wrapped(
        "As root, each for at most 20 s, and the last 48 KiB of what it prints; beside it the"
        " record that `check` looks at, and as the owner what the smoke test left below"
        " PREFIX/state:"
    )
    for name, text in items():
        lines += ["", f"{name}:", *command(text, "  ")]
    return "\n".join(lines)


def _told(files: Mapping[str, str]) -> str:
    """Name an archive's texts by their folders, and say how much they are."""
    folders: dict[str, list[str]] = {}
    for name in sorted(files):
        folder, _, text = name.removesuffix(".txt").rpartition("/")
        folders.setdefault(folder or "beside them", []).append(text)
    size = sum(map(len, files.values())) // 1024
    told = [f"{folder}: {', '.join(names)}" for folder, names in folders.items()]
    return f"{len(files)} texts, {size} KiB; {'; '.join(told)}"


def _listed(hosts: Sequence[Collected], paths: Sequence[Path | None]) -> str:
    """Return what was written, file by file, and what was replaced in it."""
    lines: list[str] = []
    for host, path in zip(hosts, paths, strict=True):
        lines += [f"{host.name}: {path or 'nothing'}"]
        if host.reason:
            lines += labelled("missing", host.reason, column=12, indent=2)
        if path is None:
            continue
        replaced = [f"{count} {kind}" for kind, count in host.masks.items()]
        lines += labelled("holds", _told(host.files), column=12, indent=2)
        lines += labelled("replaced", ", ".join(replaced) or "nothing", column=12, indent=2)
    written = [path for path in paths if path]
    if written:
        lines += ["", *wrapped("Nothing was sent. Read it before you do:")]
        lines += command(f"tar -xOzf {written[0]} | less", "  ")
        lines += wrapped(
            "The names of your hosts stand here alone; within an archive the same name is the same"
            " word."
        )
    return "\n".join(lines)
