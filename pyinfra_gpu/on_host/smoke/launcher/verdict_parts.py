"""The verdict's parts, from what a test has found."""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..judge.decisions import Decisions
from ..options import GPU, Options
from ..torch_location import TorchLocation
from .group import Group


def software(torch: TorchLocation, bundle: Path) -> dict[str, str | None]:
    """Return which program, Python, torch and kernel the verdict is about."""
    return {
        "smoke_test_sha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
        "python": platform.python_version(),
        "python_path": sys.executable,
        "torch": torch.version,
        "torch_path": torch.found,
        "kernel": platform.release(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }


def rerun_command(options: Options, bundle: Path) -> str:
    """Return the command that runs this test again by hand, with its verdict beside this one's."""
    words = [sys.executable, str(bundle), "--mode", options.mode, "--host", options.host]
    sizes = {"--ranks": options.ranks if options.mode != GPU else None, "--gpus": options.gpus}
    sizes |= {"--deadline": options.deadline, "--allreduce-mib": options.allreduce_mib}
    for name, value in sizes.items():
        words += [name, str(value)] if value is not None else []
    words += [] if options.compile else ["--no-compile"]
    words += [] if options.limit_network else ["--open-network"]
    output = options.output.with_name(f"{options.output.stem}.by-hand{options.output.suffix}")
    return shlex.join([*words, "--output", str(output)])


def rank_records(group: Group | None) -> list[dict[str, Any]]:
    """Return what became of each rank."""
    if group is None:
        return []
    records = []
    for rank, journal in sorted(group.journals.items()):
        code = group.exit_codes.get(rank, 0 if journal.finished else None)
        log = group.log_of(rank)
        record = {
            "rank": rank,
            "pid": journal.pid,
            "exit": code if code is None or code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "finished": journal.finished,
            "last_step": journal.step,
            "store": journal.facts.get("store"),
            "log": str(log) if log else None,
        }
        records.append(record)
    return records


def failed(
    decisions: Decisions, groups: Sequence[Group], remark: str | None
) -> dict[str, Any] | None:
    """Return the check that failed first, with the end of the log to look at; None on a pass.

    + remark: what else was found out about it
    """
    found = next((each for each in decisions.results() if each.id == decisions.failed), None)
    if found is None:
        return None
    rank = decisions.failed_rank
    group = groups[-1] if groups else None
    log = group.log_of(rank) if group is not None and rank is not None else None
    tail = group.tail(rank) if group is not None and found.status == "fail" else []
    return {
        "id": found.id,
        "sentence": "; ".join(filter(None, (found.detail, remark))),
        "rank": rank,
        "log": str(log) if log else None,
        "tail": tail,
    }
