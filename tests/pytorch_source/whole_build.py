"""All of the real PyTorch, CPU only: built by a deploy, installed on a second host, tested there.

    make test-pytorch-whole

About three and a quarter hours of processor time, 5 GB of disk and, once, what the distribution's
archive has of it. Ctrl-C stops the build in good order, and the next call goes on where it was, by
the product's own way of doing so: nothing here knows of objects. What is there meanwhile is in
.rehearsal-whole; what is left of it at the end is in build/evidence/.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyinfra_gpu.drift.pytorch_build import UNIT
from pyinfra_gpu_rehearsal import Lab, LabHost, available
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.placing import point
from pyinfra_gpu_rehearsal.pytorch_source import (
    DEBIAN_13_WHOLE,
    Archive,
    declared,
    ensure_archive,
)

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = Path(__file__).parents[2] / "build/evidence"
BUILDER, SECOND = "gpu1", "gpu2"
BUILD = "/opt/pyinfra-gpu/build"
STOPPED = 3
"""Exit code of a call that was stopped, or stopped by itself, before all was compiled."""


class InterruptedBuildError(Exception):
    """Somebody asked this program to end."""


class Whole:
    """Two hosts in a folder, and what was measured in all calls.

    + until: stop once so many steps are compiled; 0: do not
    """

    def __init__(self, folder: Path, until: int) -> None:
        self.folder, self.until = folder, until
        self.lab = Lab(folder / "lab", training=ROOT / "examples/tiny-gpt", kind=DEBIAN_13_WHOLE)
        self.figures: dict[str, Any] = {"calls": [], **_read(folder / "figures.json")}
        self.data: tuple[str, ...] = ()

    @property
    def host(self) -> LabHost:
        """The host that builds."""
        return self.lab.host(BUILDER)

    def up(self) -> Archive:
        """Have both hosts on, and the source served."""
        archive = ensure_archive(print)
        self.lab.up(2)
        point(self.lab.directory / "www/pytorch", archive.path.parent)
        self.data = declared(f"{self.lab.url}/pytorch", archive)
        self.data += (f"pytorch_builder={BUILDER}", "smoke_deadline_s=900")
        return archive

    def state(self) -> dict[str, Any]:
        """Return how far the build is; nothing where none was begun."""
        return _read(self.host.upper / f"{BUILD[1:]}/state.json")

    def cpu_seconds(self) -> float:
        """Return the processor time of all that ran on the builder since it was switched on."""
        text = (self.host.power.path / "cpu.stat").read_text()
        return int(re.findall(r"usage_usec (\d+)", text)[0]) / 1e6

    def deploy(self, *words: str) -> tuple[int, str]:
        """Run a deploy, shown as it goes; return its exit code and what it said.

        It is ended where somebody asks for it, and where so many steps are compiled as were asked
        for: by stopping the build, in good order.
        """
        program = str(Path(sys.executable).parent / "pyinfra")
        given = [word for each in self.data for word in ("--data", each)]
        command = [program, "-y", *given, *words, "inventories/rehearsal.py", "deploy.py"]
        variables = {
            "PYINFRA_GPU_REHEARSAL": str(self.lab.directory),
            "PYINFRA_GPU_REPORT": str(self.folder / "report.json"),
            "PYINFRA_PROGRESS": "off",
            "XDG_STATE_HOME": str(self.folder / "controller"),
            "XDG_CACHE_HOME": str(self.folder / "controller"),
        }
        log = self.folder / "deploy.txt"
        with log.open("w") as output:
            run = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                self._watched(run, log)
            except BaseException:
                self.host.run(f"systemctl stop {UNIT}", check=False, timeout=120)
                run.wait(timeout=300)
                raise
        return run.returncode, log.read_text()

    def _watched(self, run: subprocess.Popen[bytes], log: Path) -> None:
        shown = 0
        while run.poll() is None:
            time.sleep(1)
            text = log.read_text()
            sys.stdout.write(text[shown:])
            sys.stdout.flush()
            shown = len(text)
            if self.until and int(self.state().get("steps_done", 0)) >= self.until:
                raise InterruptedBuildError

    def save(self, **more: Any) -> None:
        """Write down what is known by now."""
        self.figures |= more
        text = json.dumps(self.figures, indent=1) + "\n"
        (self.folder / "figures.json").write_text(text)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def build(whole: Whole) -> int:
    """Have the builder build, as far as this call comes; note what it took."""
    before, began, started = whole.state(), datetime.now(UTC), time.monotonic()
    cpu = whole.cpu_seconds()
    print(f"{BUILDER} had compiled {before.get('steps_done', 0)} steps before", flush=True)
    code = STOPPED
    try:
        code, said = whole.deploy("--limit", BUILDER, "--data", "smoke=skip")
        if code:
            print("\n".join(said.splitlines()[-40:]))
    finally:
        after = whole.state()
        call = {
            "began": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round(time.monotonic() - started),
            "cpu_seconds": round(whole.cpu_seconds() - cpu),
            "steps": [int(each.get("steps_done", 0)) for each in (before, after)],
            "of": int(after.get("total", 0)),
            "compiled_in_all_calls": int(after.get("compiled", 0)),
            "phase": after.get("phase", "fetch"),
            "notes": after.get("notes", []),
        }
        whole.save(calls=[*whole.figures["calls"], call])
        print(json.dumps(call), flush=True)
    return code


def spread(whole: Whole, archive: Archive) -> int:
    """Install what was built on both hosts, test it there, and keep what shows it."""
    code, said = whole.deploy()
    report = _read(whole.folder / "report.json").get("hosts", {})
    (whole.folder / "both.txt").write_text(said)
    again, _ = whole.deploy()
    hosts = _read(whole.folder / "report.json").get("hosts", {})
    unchanged = not any(stage["changed"] for host in hosts.values() for stage in host["stages"])
    tests = {name: (host.get("smoke") or {}).get("status") for name, host in report.items()}
    passed = code == again == 0 and tests.get(SECOND) in ("pass", "warn") and unchanged
    manifest = _read(whole.host.upper / f"{BUILD[1:]}/wheel.json")
    whole.save(
        when=datetime.now(UTC).strftime("%Y-%m-%d"),
        where=f"{os.cpu_count()} cores, {platform.machine()}, shared with other work",
        source=[*archive.packages],
        cpu_seconds_of_all_calls=sum(call["cpu_seconds"] for call in whole.figures["calls"]),
        wheel_bytes=manifest.get("size"),
        smoke_tests=tests,
        a_second_run_changes_nothing=unchanged,
        stages_of_the_second_host={
            stage["stage"]: stage["seconds"] for stage in report.get(SECOND, {}).get("stages", [])
        },
    )
    print(json.dumps(whole.figures, indent=1))
    if not passed:
        print("\n".join(said.splitlines()[-60:]))
        return 1
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    (EVIDENCE / "whole_build.json").write_text(json.dumps(whole.figures, indent=1) + "\n")
    (EVIDENCE / "whole_build_wheel.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (EVIDENCE / "whole_build_deploy.txt").write_text(said)
    log = (whole.host.upper / f"{BUILD[1:]}/log.txt").read_bytes()
    (EVIDENCE / "whole_build_log.txt.gz").write_bytes(gzip.compress(log, mtime=0))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Go on with it; 0 only if the second host's smoke test passed with the built torch."""
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch_source.whole_build")
    parser.add_argument("--folder", type=Path, default=ROOT / ".rehearsal-whole")
    parser.add_argument("--until", type=int, default=0, help="stop when so many steps are compiled")
    parser.add_argument("--clean", action="store_true", help="remove the hosts and the folder")
    options = parser.parse_args(words)
    whole = Whole(options.folder.absolute(), options.until)
    if options.clean:
        whole.lab.down()
        return 0
    if why := available():
        print(why)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    whole.folder.mkdir(exist_ok=True)
    try:
        archive = whole.up()
        return build(whole) or spread(whole, archive)
    except LabError as error:
        print(error)
        return 1
    except InterruptedBuildError:
        print("stopped: call it again, and it goes on from there")
        return STOPPED
    finally:
        whole.lab.off()


def _interrupt(number: int, frame: object) -> None:
    raise InterruptedBuildError


if __name__ == "__main__":
    raise SystemExit(main())
