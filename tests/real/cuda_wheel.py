"""The CUDA build of torch, installed by a deploy on a throwaway host: looked at, damaged, repaired.

    make test-cuda-wheel
    python -m tests.real.cuda_wheel torch triton      these wheels alone, and no evidence

Some eight minutes on two cores, 2.6 GB of wheels and 5.2 GB installed, all removed at the end; so
no part of `make test`. What it saw is written to build/evidence/. Real are the
wheels of torch and of everything it needs, uv, Triton with its ptxas, and the look; simulated are
the GPUs on the bus and their driver. No GPU computed anything: not one of NVIDIA's kernels has run.
"""

from __future__ import annotations

import os
import runpy
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.engine.look import request_text
from pyinfra_gpu_rehearsal import Lab, LabError, LabHost
from pyinfra_gpu_rehearsal.aptconfig import of_release, read_machine
from pyinfra_gpu_rehearsal.base_image import ensure_base_image
from pyinfra_gpu_rehearsal.kind import Kind
from pyinfra_gpu_rehearsal.wheelhouse import UV, ensure_wheels
from tests.real.report import ROOT, Program, Report, said

INVENTORY = "tests/real/cuda_inventory.py"
TORCH = "2.14.1"
WHEELS = (f"torch=={TORCH}", UV)
VENV = "/opt/pyinfra-gpu/venv"
SITE = f"{VENV}/lib/python3.11/site-packages"
BUNDLE = "/opt/pyinfra-gpu/smoke/smoke_test.pyz"
LOOKS = 7
MOST_S = 0.5  # of the host's time for a look, by the wall and by the processor
COUNTED = "more than a look can compare"
ON_HOST = Path(__file__).parent / "on_host"
DAMAGE = {
    "removed": "rm -- {path}",
    "cut off": "truncate -s 1 -- {path}",
    # In place, so that uv's own copy, which is the same file, is damaged too; the size stays.
    "changed in its middle": "printf 'something else' |"
    " dd of={path} bs=1 seek=$(($(stat -c %s {path}) / 2)) conv=notrunc status=none",
}


@dataclass(frozen=True)
class Wheel:
    """An installed wheel: its name, the largest of its files, and that file's digest."""

    name: str
    path: str
    digest: str


def put(host: LabHost, name: str) -> str:
    """Put a program of on_host/ onto the host; return its path there."""
    host.put(ON_HOST / name, f"/root/{name}")
    return f"/root/{name}"


def look_times(report: Report, host: LabHost, when: str) -> None:
    """Measure what a look costs the host: seconds by the clock and of the processor."""
    name, data = runpy.run_path(INVENTORY)["gpu"][0]
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(request_text(resolve(data, name)))
        file.flush()
        host.put(Path(file.name), "/root/look")
    lines = said(host, f"bash {put(host, 'time_look.sh')} /root/look {LOOKS}").splitlines()
    found = [[float(word) for word in line.split()] for line in lines]
    wall = statistics.median(each[0] for each in found)
    processor = statistics.median(each[1] + each[2] for each in found)
    text = f"median of {LOOKS}: {wall:.2f} s by the clock, {processor:.2f} s of the processor"
    report.add(f"What a look costs the host, {when}", text)
    report.expect(
        f"a look takes at most {MOST_S} s of the host {when}", max(wall, processor) <= MOST_S
    )


def wheels(host: LabHost) -> list[Wheel]:
    """Return what is installed, by each wheel's own list."""
    lines = said(host, f"{VENV}/bin/python -I {put(host, 'wheel_files.py')} {SITE}").splitlines()
    return [Wheel(*line.split("\t")) for line in lines]


def lists(host: LabHost) -> dict[str, str]:
    """Return the inode of each wheel's list: another one, and it was installed again."""
    rows = said(host, f"stat -c '%n %i' {SITE}/*.dist-info/RECORD").splitlines()
    return {
        row.rpartition("/")[0].rpartition("/")[2].partition("-")[0].replace("_", "-").lower(): row
        for row in rows
    }


def of_torch(program: Program) -> dict[str, str]:
    """Return what `check` says of the one host's environment."""
    (found,) = program.check().values()
    return {id_: text for id_, text in found.items() if id_.startswith("pytorch.")}


def seen_by_check(program: Program, path: str) -> tuple[str, dict[str, str]]:
    """Return how `check` sees that a file was damaged, "" if not at all; and what it says.

    It compares touched files for two seconds. What it has no time for, as where many wheels were
    installed again since the smoke test passed, or on a busy machine, it counts: then that test is
    owed, and the deploy, which takes longer, finds which file it was.
    """
    (found,) = program.check().values()
    if any(path in text for text in found.values()):
        return "seen", found
    return ("counted" if COUNTED in found.get("smoke.unproven", "") else ""), found


def repaired(report: Report, program: Program, host: LabHost, wheel: Wheel, how: str) -> None:
    """Damage a file of one wheel; have that seen, and that wheel alone repaired."""
    before = lists(host)
    host.run(DAMAGE[how].format(path=f"'{SITE}/{wheel.path}'"))
    seen, told = seen_by_check(program, wheel.path)
    begun = time.monotonic()
    _, output = program.deploy("deploy.py")
    took = time.monotonic() - begun
    digest = (
        f"import hashlib, base64; f = open('{SITE}/{wheel.path}', 'rb');"
        " print(base64.urlsafe_b64encode(hashlib.sha256(f.read()).digest()).decode().rstrip('='))"
    )
    again = {name for name, row in lists(host).items() if before.get(name) != row}
    whole = said(host, f'{VENV}/bin/python -I -c "{digest}"').strip() == wheel.digest
    left = of_torch(program)
    good = seen and whole and not left
    report.expect(
        f"{wheel.name}: {wheel.path} {how}: {seen or 'not seen'}, repaired in {took:.0f} s, alone",
        bool(good) and again == {wheel.name},
    )
    if not good or again != {wheel.name}:
        text = f"seen: {told}\ninstalled again: {again}\nleft: {left}\n{output[-2000:]}"
        report.add(f"{wheel.name}: what was said", text)


def installed(report: Report, program: Program, host: LabHost) -> None:
    """Deploy to the bare host, and look at what is there then."""
    begun = time.monotonic()
    code, output = program.deploy("deploy.py")
    lines = [line for line in output.splitlines() if line.strip()]
    report.add(f"The first deploy ({time.monotonic() - begun:.0f} s)", "\n".join(lines[-40:]))
    report.expect("it ends with 0, the smoke test (rehearsal-cpu) passed", code == 0)
    program.deploy("deploy.py")
    report.expect("the second run changes nothing", not any(program.changed().values()))
    report.add(
        "What is installed",
        said(host, f"ls -d {SITE}/*.dist-info | xargs -n1 basename; du -shL {SITE}"),
    )
    torch = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_arch_list(),"
    torch += " torch.cuda.nccl.version(), torch.backends.cudnn.version())"
    report.add("What torch says of itself", said(host, f'{VENV}/bin/python -I -c "{torch}"'))


def compiled(report: Report, host: LabHost) -> None:
    """Try what needs no GPU of number formats and of Triton."""
    python = f"{VENV}/bin/python"
    text = said(host, f"{python} -I {put(host, 'formats_on_meta.py')} {BUNDLE}")
    report.add("Number formats on the meta device", text)
    rows = [line for line in text.splitlines() if "torch.bfloat16" in line]
    report.expect("torch takes the types, sizes and scales of all five formats", len(rows) == 5)
    text = said(host, f"{python} -I {put(host, 'cross_compile.py')}")
    report.add("Triton for GPUs that are not there", text)
    report.expect(
        "Triton makes code for sm_90 and sm_120", "sm_90: PTX" in text and "sm_120: PTX" in text
    )


def main() -> int:
    """Run all of it; 0 only if everything was as it should be."""
    report, only = Report(), sys.argv[1:]
    kind = Kind(wheels=WHEELS)
    image = ensure_base_image(of_release(read_machine(), ""), print, kind.packages)
    folder, _ = ensure_wheels(image.python, print, WHEELS)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pyinfra-gpu-real-") as work:
        lab = Lab(Path(work) / "lab", training=ROOT / "examples/tiny-gpt", kind=kind)
        os.environ["PYINFRA_GPU_REHEARSAL"] = str(lab.directory)
        try:
            (host,) = lab.up(1, machine="2x RTX 5090")
            program = Program(lab, INVENTORY)
            installed(report, program, host)
            look_times(report, host, "with the whole environment as it was proven")
            compiled(report, host)
            there = wheels(host)
            for number, wheel in enumerate(there):
                if only and wheel.name not in only:
                    continue
                repaired(report, program, host, wheel, [*DAMAGE][number % len(DAMAGE)])
            report.expect("at last nothing differs", not of_torch(program))
        finally:
            lab.down()
            shutil.rmtree(folder, ignore_errors=True)
    if only:
        return int(bool(report.wrong))
    about = f"Written by `make test-cuda-wheel` in {time.monotonic() - begun:.0f} s. Real are"
    about += (__doc__ or "").partition("Real are")[2].rstrip()
    return report.write("cuda_wheel.md", f"torch {TORCH} for CUDA 13.0 on a throwaway host", about)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except LabError as error:
        raise SystemExit(str(error)) from None
