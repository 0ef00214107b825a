"""The distribution's real driver, on a throwaway host: installed, built, judged, repaired.

    make test-real-driver

Three minutes on two cores, and 300 MB from the distribution's archive the first time, so no part of
`make test`. What it saw is written to build/evidence/. Real are the archive's
packages, apt, dpkg, DKMS, gcc, modprobe and update-alternatives; the GPUs on the bus are simulated,
and that a kernel of that name runs. No module can be loaded there: the run ends where it would be.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal import Lab, LabError, LabHost
from pyinfra_gpu_rehearsal.aptconfig import of_release, read_machine
from pyinfra_gpu_rehearsal.base_image import ensure_base_image
from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.real.archive import Wanted, fetch
from pyinfra_gpu_rehearsal.real.host import furnish
from tests.real.drifts import DRIFTS, Drift
from tests.real.report import Program, Report, said

INVENTORY, DRIVER = "tests/real/inventory.py", "tests/rehearsal/only_driver.py"
KERNEL = "6.1.0-50-amd64"  # the newest of Debian 12 for which its own open modules compile
OPEN, SECURITY = "535.261.03-1", "535.309.01-0+deb12u1"
_OF_BOTH = (
    *("libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "libnvidia-pkcs11-openssl3"),
    *("libnvidia-cfg1", "firmware-nvidia-gsp", "nvidia-alternative", "nvidia-smi"),
)
WANTED = (
    Wanted(
        suite="bookworm",
        packages=(
            *(f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}", "initramfs-tools", "zstd"),
            *("g++", "nvidia-persistenced", "python3-venv", "python3-dev"),
            *(f"{name}={OPEN}" for name in _OF_BOTH),
            *(f"nvidia-open-kernel-{name}={OPEN}" for name in ("dkms", "support")),
        ),
    ),
    Wanted(
        suite="bookworm-security",
        packages=(),
        alone=tuple(f"{name}={SECURITY}" for name in _OF_BOTH),
    ),
)
_LOOK = {
    "the kernel that the host believes in": "uname -r; cat /proc/sys/kernel/osrelease",
    "packages": "dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*' libcuda1 | grep ' 5'",
    "modules that DKMS built": "dkms status; ls /lib/modules/$(uname -r)/updates/dkms",
    "what modprobe would load": "modprobe --show-depends nvidia; modinfo -F license"
    " nvidia-current-open; modinfo nvidia",
    "loading it": "modprobe nvidia; echo exit $?",
    "alternatives": "ls -l /etc/alternatives | grep -oE '(nvidia|glx)[^ ]* -> .*'",
    "nvidia-smi": "nvidia-smi; echo exit $?",
    "libcuda": "ldconfig -p | grep libcuda; readlink -f /usr/lib/x86_64-linux-gnu/libcuda.so.1;"
    " /root/driver_says",
    "holds and pins": "apt-mark showhold | wc -l; apt-cache policy libcuda1",
    "an upgrade of everything": "apt-get -q -s dist-upgrade | grep -E '^(Inst|Remv)|upgraded'",
}


def _put_program(host: LabHost) -> None:
    """Compile here, for a host without a C library to compile with, what asks libcuda there."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "driver_says"
        source = Path(__file__).with_name("driver_says.c")
        run(["gcc", "-O1", "-o", built, source, "-ldl"], purpose=f"compiling {source.name}")
        host.put(built, "/root/driver_says")
    host.run("chmod +x /root/driver_says")


def of_driver(program: Program) -> dict[str, str]:
    """Return what `check` says of the one host's driver and library."""
    (found,) = program.check().values()
    return {id_: text for id_, text in found.items() if id_.startswith(("driver.", "libcuda."))}


def installed(report: Report, program: Program, host: LabHost) -> None:
    """Deploy to the bare host, and look at what is there then."""
    before = of_driver(program)
    report.add("`check` of the bare host", "\n".join(f"{k}: {v}" for k, v in before.items()))
    begun = time.monotonic()
    _, output = program.deploy(DRIVER)
    took = time.monotonic() - begun
    lines = [line for line in output.splitlines() if line.strip()]
    report.add(f"The deploy of the driver ({took:.0f} s)", "\n".join(lines[-45:]))
    _put_program(host)
    looks = {title: said(host, command) for title, command in _LOOK.items()}
    for title, text in looks.items():
        report.add(title, text)
    after = of_driver(program)
    report.add("`check` afterwards", "\n".join(f"{k}: {v}" for k, v in after.items()))
    newer = re.findall(r"^(\S+) 535\.309", looks["packages"], re.M)
    report.expect(
        "all parts of the driver are of the open modules' version, 535.261.03",
        set(newer) <= set(catalogue().archives["debian"].apart),
    )
    report.expect("DKMS built the real open module for the kernel",
                  f"{KERNEL}, x86_64: installed" in looks["modules that DKMS built"])  # fmt: skip
    report.expect("modinfo finds no module nvidia; modprobe loads nvidia-current-open",
                  "Module nvidia not found" in looks["what modprobe would load"])  # fmt: skip
    report.expect("nvidia-smi is NVIDIA's, and finds no driver",
                  "communicate with the NVIDIA driver" in looks["nvidia-smi"])  # fmt: skip
    report.expect("libcuda is NVIDIA's, and finds no GPU", "cuInit 100" in looks["libcuda"])
    report.expect("an upgrade of everything leaves the driver alone",
                  "Inst lib" not in looks["an upgrade of everything"])  # fmt: skip
    report.expect("what is left is that no module is loaded, and what follows from that",
                  set(after) <= {"driver.not-loaded", "driver.persistenced-off",
                                 "libcuda.unproven"})  # fmt: skip


def repaired(report: Report, program: Program, host: LabHost, drift: Drift) -> None:
    """Inject one drift, and have it seen and repaired."""
    done = host.run(drift.inject, check=False)
    found = of_driver(program)
    seen = drift.id in found
    _, output = program.deploy(DRIVER)
    healed = host.run(drift.healed, check=False).returncode == 0
    left = drift.id in of_driver(program)
    report.expect(
        f"{drift.name}: seen as {drift.id} ({found.get(drift.id, 'not seen')}), and repaired",
        done.returncode == 0 and seen and healed and not left,
    )
    if not (seen and healed) or left:
        report.add(f"{drift.name}: what was said", f"{done.stderr}\n{found}\n{output[-3000:]}")


def main() -> int:
    """Run all of it; 0 only if everything was as it should be."""
    report = Report()
    apt = of_release(read_machine(), "debian12")
    image = ensure_base_image(apt, print)
    packages = fetch(apt, image, WANTED, print)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pyinfra-gpu-real-") as folder:
        lab = Lab(Path(folder) / "lab")
        try:
            (host,) = lab.up(1, release="debian12")
            furnish(lab, host, packages, WANTED, release=KERNEL, machine="2x H200")
            program = Program(lab, INVENTORY)
            installed(report, program, host)
            for drift in DRIFTS:
                repaired(report, program, host, drift)
        finally:
            lab.down()
    about = f"Written by `make test-real-driver` in {time.monotonic() - begun:.0f} s. Real are"
    about += (__doc__ or "").partition("Real are")[2].rstrip()
    return report.write("debian12.md", "Debian 12's own driver on a throwaway host", about)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except LabError as error:
        raise SystemExit(str(error)) from None
