"""Debian 13 beside Debian 12: the same deploy, on a host without GPUs and with simulated ones.

    make test-debian13

A minute on two cores. Where this machine's indexes have torch for Debian 13's Python the whole
deploy is run, and otherwise what comes before torch. What differs between the releases is data:
NVIDIA's repository for Debian 13 begins with branch 590.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pyinfra_gpu_rehearsal import Lab
from tests.real.report import ROOT, Program, Report, said

BEFORE_TORCH, WHOLE = "tests/real/before_torch.py", "deploy.py"
STAGES = ("preflight.", "driver.", "packages.", "layout.", "cuda.", "libcuda.")


def main() -> int:
    """Run all of it; 0 only if everything was as it should be."""
    report, begun = Report(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pyinfra-gpu-real-") as folder:
        lab = Lab(Path(folder) / "lab", training=ROOT / "examples/tiny-gpt")
        try:
            lab.up(1, release="debian13")
            hosts = lab.up(2, machine="2x RTX 5090")
            wheels = any((lab.directory / "www/simple").glob("torch"))
            file = WHOLE if wheels else BEFORE_TORCH
            program = Program(lab, "inventories/rehearsal.py")
            for host in hosts:
                what = said(
                    host, ". /etc/os-release; echo $PRETTY_NAME; apt-get --version | head -1"
                )
                report.add(f"{host.name}, {host.machine.name if host.machine else 'no GPU'}", what)
            code, output = program.deploy(file)
            lines = [line for line in output.splitlines() if line.strip()]
            report.add(f"The first deploy of {file}", "\n".join(lines[-40:]))
            report.expect("it ends with 0", code == 0)
            code, output = program.deploy(file)
            report.expect("the second run changes nothing", not any(program.changed().values()))
            report.expect("it ends with 0, too", code == 0)
            found = {
                name: [id_ for id_ in ids if id_.startswith(STAGES)]
                for name, ids in program.check().items()
            }
            report.expect(
                f"`check` finds nothing in these stages ({found})", not any(found.values())
            )
            driver = said(
                hosts[1], "dkms status; apt-mark showhold; cat /sys/module/nvidia/version"
            )
            report.add("The driver of the host with simulated GPUs", driver)
            report.expect("its module is DKMS's, and loaded", "595.71.05, " in driver)
        finally:
            lab.down()
    about = f"Written by `make test-debian13` in {time.monotonic() - begun:.0f} s, with simulated"
    return report.write("debian13.md", "Throwaway hosts with Debian 13", f"{about} GPUs.")


if __name__ == "__main__":
    raise SystemExit(main())
