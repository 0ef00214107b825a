"""The verdict: one JSON document a run, its figures, its exit code, and the evidence beside it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import exactness, files, hang
from .check import Result
from .document import AllReduce, Failed, Format, Link, Metrics, Rank, Software
from .files import write_text
from .group import Group, last_lines
from .journal import Journal
from .libraries import Torch
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU, Options
from .step import loss_drop

LABELS = {
    GPU: "gpu: NCCL on all GPUs of this host, one rank a GPU",
    REHEARSAL_1GPU: "rehearsal-1gpu: one NCCL rank on one GPU; it proves what one GPU can, and "
    "nothing about two",
    REHEARSAL_CPU: "rehearsal-cpu: gloo on the CPU, no GPU was used; this is not proof of a "
    "working GPU host",
}
FAILED, NOT_PROOF = 2, 3
_EXIT_CODES = {"pass": 0, "warn": 1, "fail": FAILED, "unknown": 3}
_WIDTH = 72
"""A terminal's 80 columns, less the host's name that pyinfra puts before each line."""
_LINES, _BYTES, _ALL_BYTES = 400, 64 * 1024, 480 * 1024
"""Of one entry of the evidence, and of the file; its reader takes no more than 768 KiB."""


def proves(status: str, mode: str) -> bool:
    """Return whether the run proves that a GPU host works."""
    return mode == GPU and status in ("pass", "warn")


def exit_code(status: str, mode: str) -> int:
    """Return 0 pass, 1 degraded, 2 fail, 3 unknown, or not failed in a mode that proves nothing."""
    return NOT_PROOF if status in ("pass", "warn") and mode != GPU else _EXIT_CODES[status]


def metrics(
    journals: Mapping[int, Journal],
    ranks: int,
    began: float,
    afterwards: Mapping[str, Any] | None = None,
) -> Metrics:
    """Return the figures, as far as all ranks have come.

    + began: when the launcher started, on the ranks' clock
    + afterwards: what the launcher found on a host with GPUs when the ranks had ended
    """
    known = [journals[rank] for rank in range(ranks) if rank in journals]
    if len(known) < ranks:
        return Metrics()
    slowest = {
        name: max(journal.seconds[name] for journal in known)
        for name in known[0].seconds
        if name != "identity" and all(name in each.seconds for each in known)
    }
    launch = max((each.started or began for each in known), default=began) - began
    facts = {journal.rank: journal.facts for journal in known}
    found: dict[str, Any] = {"seconds": {"launch": round(launch, 4), **slowest}}
    if all("step" in each for each in facts.values()):
        names = ("loss0", "loss1", "taylor_ratio")
        drop = loss_drop(facts)
        found |= {name: files.finite(drop[name]) for name in names}
    if ranks > 1 and all("all_reduce" in each for each in facts.values()):
        found["allreduce"] = (*_all_reduces(facts),)
    return Metrics(**found, **_of_gpus(facts, afterwards or {}))


def _all_reduces(facts: Mapping[int, Mapping[str, Any]]) -> Iterator[AllReduce]:
    """Yield per size the best time of the repeats, each as slow as its slowest rank."""
    for kind in exactness.KINDS:
        best: dict[int, float] = {}
        of_kind = [fact["all_reduce"].get(kind, []) for fact in facts.values()]
        for runs in zip(*of_kind, strict=False):
            slowest = max(run["seconds"] for run in runs)
            best[runs[0]["size"]] = min(best.get(runs[0]["size"], slowest), slowest)
        for size, seconds in best.items():
            yield AllReduce(kind, size, seconds, round(size / max(seconds, 1e-6) / 1e6, 3))  # type: ignore[arg-type]


def _of_gpus(facts: Mapping[int, Any], afterwards: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of GPUs: arithmetic and memory speed, all-reduce, link, way, formats."""
    found: dict[str, Any] = {}
    for key in ("bf16_tflops", "memory_gb_s"):
        found[key] = {str(n): each["speed"][key] for n, each in facts.items() if "speed" in each}
    loads = [each["bandwidth"] for each in facts.values() if "bandwidth" in each]
    if loads:
        speed = min(each["busbw_gb_s"] for each in loads)
        found["allreduce_busbw_gb_s" if len(loads) > 1 else "host_copy_gb_s"] = speed
        found["allreduce_bytes"] = loads[0]["bytes"] if len(loads) > 1 else None
        found["link"] = {
            index: Link(**{name: seen[name] for name in Link.__dataclass_fields__ if name in seen})
            for index, seen in loads[0].get("link", {}).items()
        }
    if transport := afterwards.get("transport"):
        found["transport"], found["nccl"] = transport["ways"], (*transport["versions"],)
    if precision := afterwards.get("precision"):
        found["precision"] = {
            name: Format(each["status"], each["reason"], each.get("tflops"))
            for name, each in precision["formats"].items()
        }
        found["precision_best"] = precision["best"]
    return found


def loaded(ranks: Mapping[int, Journal]) -> dict[str, Any] | None:
    """Return what rank 0 saw of the GPUs under load, None if it did not come so far."""
    found: dict[str, Any] | None = None
    if 0 in ranks:
        found = ranks[0].facts.get("bandwidth", {}).get("link")
    return found


def ranks(group: Group) -> tuple[Rank, ...]:
    """Return what became of each rank."""
    records = []
    for number, journal in sorted(group.journals.items()):
        code = group.codes.get(number, 0 if journal.finished else None)
        logs = group.logs_of(number)
        records.append(
            Rank(
                rank=number,
                pid=journal.pid,
                exit=code if code is None or code >= 0 else None,
                signal=-code if code is not None and code < 0 else None,
                finished=journal.finished,
                last_step=journal.step,
                log=str(logs[0]) if logs else None,
            )
        )
    return tuple(records)


def failed(result: Result | None, group: Group | None, remark: str | None) -> Failed | None:
    """Return the check that failed first, with the end of the log to look at; None on a pass.

    + group: what ran last; remark: what else was found out about it
    """
    if result is None:
        return None
    rank = result.rank
    logs = group.logs_of(rank) if group and rank is not None else []
    return Failed(
        id=result.id,
        sentence="; ".join(filter(None, (result.detail, remark))),
        rank=rank,
        log=str(logs[0]) if logs else None,
        tail=tuple(group.tail(rank)) if group and result.status == "fail" else (),
    )


def software(torch: Torch, bundle: Path) -> Software:
    """Return which program, Python, torch and kernel the verdict is about."""
    return Software(
        smoke_test_sha256=hashlib.sha256(bundle.read_bytes()).hexdigest(),
        python=platform.python_version(),
        python_path=sys.executable,
        torch=torch.version,
        torch_path=torch.found,
        kernel=platform.release(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    )


def rerun_command(options: Options, bundle: Path) -> str:
    """Return the command that runs this test again by hand, with its verdict beside this."""
    words = [sys.executable, str(bundle), "--mode", options.mode, "--host", options.host]
    sizes = {"--ranks": options.ranks if options.mode != GPU else None, "--gpus": options.gpus}
    sizes |= {"--deadline": options.deadline, "--allreduce-mib": options.allreduce_mib}
    for name, value in sizes.items():
        words += [name, str(value)] if value is not None else []
    words += [] if options.compile else ["--no-compile"]
    words += [] if options.limit_network else ["--open-network"]
    output = options.output.with_name(f"{options.output.stem}.by-hand{options.output.suffix}")
    return shlex.join([*words, "--output", str(output)])


# -- evidence


def evidence(
    directory: Path,
    groups: Sequence[Group],
    first: int | None,
    kernel: Sequence[str] | None,
    remarks: Sequence[str],
) -> Path:
    """Keep the ends of all logs in one file, those of the process that failed `first` foremost:
    whoever looks for a cause reads in order. Raises OSError where it cannot be written.
    """
    root: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for group in reversed(groups):
        for number in range(group.plan.count):
            is_root = group is groups[-1] and number == first
            (root if is_root else others).extend(_of_process(group, number))
    starters = [
        _entry("torchrun", None, last_lines(group.plan.directory / "torchrun.log", _LINES))
        for group in reversed(groups)
    ]
    analysed = [line for group in groups[-1:] for line in hang.collectives(group.plan.directory)]
    stage = _entry("stage", None, [*remarks, *analysed])
    kept, size = [], 0
    for each in (*root, stage, _entry("kernel", None, kernel or []), *starters, *others):
        size += len(json.dumps(each)) + 2
        if each["text"].strip() and size <= _ALL_BYTES:
            kept.append(each)
    write_text(directory / "evidence.json", json.dumps(kept, indent=1) + "\n")
    return directory / "evidence.json"


def _of_process(group: Group, number: int) -> Iterator[dict[str, Any]]:
    """Yield what one process left; one that died early has a log and no journal."""
    journal, directory = group.journals.get(number), group.plan.directory
    if journal and journal.error:
        yield _entry("rank", number, journal.error.splitlines())
    for log in group.logs_of(number):
        yield _entry("rank", number, last_lines(log, _LINES))
    for path in directory.glob(f"nccl.*.{journal.pid}.log") if journal else ():
        yield _entry("nccl", number, last_lines(path, _LINES))
    if stack := group.stack_of(number):
        yield _entry("stage", number, last_lines(stack, _LINES))


def _entry(source: str, rank: int | None, lines: Sequence[str]) -> dict[str, Any]:
    text = "\n".join(lines[-_LINES:]).encode(errors="replace")[-_BYTES:]
    return {"source": source, "rank": rank, "text": text.decode(errors="ignore")}


# -- told while it runs


class Announcer:
    """Prints lines that begin with the mode, so that no line can be taken for another's result."""

    def __init__(self, mode: str) -> None:
        self._label = f"[{mode}] "

    def quote(self, line: str) -> None:
        """Print a line of somebody's log, cut to the width."""
        self._print(f"{self._label}| {line}"[:_WIDTH])

    def say(self, text: str) -> None:
        """Print `text`, wrapped to the width."""
        width = _WIDTH - len(self._label)
        for line in textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False):
            self._print(self._label + line)

    def check(self, result: Result) -> None:
        """Print one check, with its detail where that fits; a failure's is printed at the end."""
        seconds = "" if result.seconds is None else f"{result.seconds:.2f} s"
        line = f"{self._label}{result.id:<23} {result.status:<5}{seconds:>8}"
        fits = 0 < len(result.detail) <= _WIDTH - len(line) - 2
        self._print(f"{line}  {result.detail}" if fits else line)

    def _print(self, line: str) -> None:
        """Print now; a reader that has gone (a lost connection) must not end the test."""
        try:
            print(line, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
