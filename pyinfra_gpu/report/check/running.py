"""Starting pyinfra for a dry run, and making an answer of what it left and printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.check.judge import judge
from pyinfra_gpu.report.run import REPORT_VARIABLE

DEPLOY = "deploy.py"
Progress = Callable[[str], None]
"""Is told in a few words how far the check has come, over and over."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_AT_HOST = re.compile(r"\s*\[(?P<host>[^\]]+)\]\s+(?P<text>\S.*)")
_ERROR = re.compile(r"--> (?P<ours>pyinfra-gpu: )?(?P<text>.*)")
_PAIR = re.compile(r"(?P<what>Could not connect|Authentication error) \((?P<why>.*)\)")
_CONNECTING_ERRNO = re.compile(r"^\[Errno \S+\] ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to check, in pyinfra's own words.

    + inventory: a file or names of hosts; limit, exclude: names, groups or patterns
    + data: KEY=VALUE, over what group_data and the inventory declare
    + same_sudo_password: ask once for the password that sudo wants on all hosts
    """

    inventory: str
    limit: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    same_sudo_password: bool = False

    def command(self) -> list[str]:
        """Return pyinfra's command line.

        With --json, since a plain --dry asks what to do about a host that cannot be reached.
        """
        words = [sys.executable, "-m", "pyinfra", "--dry", "--json"]
        for option, values in (
            ("--limit", self.limit),
            ("--exclude", self.exclude),
            ("--data", self.data),
        ):
            for value in values:
                words += [option, value]
        if self.same_sudo_password:
            words.append("--same-sudo-password")
        return [*words, self.inventory, DEPLOY]


@dataclass(slots=True)
class Said:
    """What pyinfra printed: at each host's name, and of itself."""

    hosts: dict[str, list[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    last: str = ""
    connected: int = 0
    unreachable: int = 0
    ready: int = 0

    def hear(self, line: str) -> None:
        """Sort one line of what pyinfra prints."""
        line = _COLOUR.sub("", line).rstrip()
        if match := _AT_HOST.fullmatch(line):
            self._at_host(match["host"], match["text"])
        elif match := _ERROR.fullmatch(line):
            text = match["text"]
            if match["ours"] or "error" in text.lower():
                self.errors.append(re.sub(r"^pyinfra error(: | in )", "", text))
        if line.strip():
            self.last = line.strip()

    def _at_host(self, host: str, text: str) -> None:
        if pair := _PAIR.fullmatch(text):
            text = _CONNECTING_ERRNO.sub("", pair["why"])
        text = text.rpartition(f"[{host}] ")[2]  # it asked for a password on the same line
        texts = self.hosts.setdefault(host, [])
        if text == "Connected":
            self.connected += 1
        elif text.startswith("Ready:"):
            self.ready += 1
        elif pair:
            self.unreachable += 1
        texts.append(text)

    @property
    def progress(self) -> str:
        """How far it has come, in a few words; empty before the first host answered."""
        if not self.connected and not self.unreachable:
            return ""
        lost = f", {self.unreachable} could not be reached" if self.unreachable else ""
        return f"looked at {self.ready} of {self.connected} connected hosts{lost}"


def run(request: Request, progress: Progress | None = None) -> Answer:
    """Look at the hosts through one dry run of pyinfra, and judge them. Never writes to a host.

    + progress: called whenever there is something new to say

    Whatever goes wrong becomes an answer whose verdict is "unknown", with the reason.
    """
    checked = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    started = time.monotonic()
    if not Path(DEPLOY).is_file():
        reason = f"there is no {DEPLOY} in {Path.cwd()}: run this in the project's folder"
        return Answer(inventory=request.inventory, checked=checked, seconds=0, reasons=(reason,))
    with tempfile.TemporaryDirectory(prefix="pyinfra-gpu-check-") as folder:
        path = Path(folder) / "report.json"
        code, said = _start(request, path, progress)
        report = _read(path)
    hosts, reasons = answers(report, said, code)
    return Answer(
        inventory=request.inventory,
        checked=checked,
        seconds=time.monotonic() - started,
        hosts=hosts,
        reasons=reasons,
    )


def _start(request: Request, report: Path, progress: Progress | None) -> tuple[int, Said]:
    environment = {
        **os.environ,
        REPORT_VARIABLE: str(report),
        "PYINFRA_PROGRESS": "off",
        "PYTHONUNBUFFERED": "1",
    }
    said, shown = Said(), ""
    with subprocess.Popen(
        request.command(),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        # Without a terminal of its own pyinfra cannot stop to ask, unseen, for a password.
        start_new_session=not request.same_sudo_password,
    ) as process:
        try:
            for line in process.stderr or ():
                said.hear(line)
                if progress and said.progress != shown:
                    progress(said.progress)
                    shown = said.progress
        except BaseException:  # Ctrl-C: pyinfra has a session of its own and did not get it
            process.terminate()
            # Popen itself waits a quarter of a second only, and pyinfra may write its report late.
            process.wait()
            raise
    return process.returncode, said


def _read(path: Path) -> dict[str, Any] | None:
    """Return the run's report, None where there is none or only a part of one."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def answers(
    report: dict[str, Any] | None, said: Said, code: int
) -> tuple[tuple[HostAnswer, ...], tuple[str, ...]]:
    """Return an answer for each host, and why nothing can be told beyond that.

    + report: what the run left, None where it left nothing
    + code: pyinfra's exit code
    """
    hosts = report.get("hosts") if report else None
    if not isinstance(hosts, dict):
        # pyinfra stops before the deploy file where it reaches no host at all.
        lost = tuple(judge(name, None, words) for name, words in said.hosts.items())
        alone = lost and not said.connected
        return lost, ("no host could be reached",) if alone else _reasons(said, code)
    found = tuple(judge(str(name), host, said.hosts.get(name, ())) for name, host in hosts.items())
    return found, () if found else _reasons(said, code)


def _reasons(said: Said, code: int) -> tuple[str, ...]:
    texts: Sequence[str] = said.errors or [said.last or "it printed nothing"]
    if said.errors and all(texts):
        return tuple(texts)
    return (f"pyinfra ended with exit code {code} before it had looked: {texts[0]}",)
