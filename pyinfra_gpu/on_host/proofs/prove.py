"""Shows on a host that nvcc compiles, or which libcuda programs load; run by the owner.

    python3 -I -S -c PROGRAM ASKED

ASKED is JSON: `proof` ("cuda" or "libcuda"), `output` (the file to leave), `kind` and `state` (kept
in it as they are), `source` (its text), `compiler`, and what `cuda` or `libcuda` below reads.
The last line says what is wrong; exits with 0 and leaves `output` only when all of it holds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The flags and folders of whoever runs this would prove something about them, not about the host.
PERSONAL = (
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH"),
    *("CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
)
CUDA_MACHINE = 190  # of an ELF file


class ProofError(Exception):
    """What does not hold, as a sentence."""


def run(command: Sequence[str], telling: str, sentence: str, seconds: float = 600) -> str:
    """Return what a program prints; where it fails, show that and raise `sentence` with the line
    that says most.

    + telling: pattern of that line
    """
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        said = (done.stdout + done.stderr).decode(errors="replace")
        if done.returncode == 0:
            return done.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    lines = [line for line in said.splitlines() if line.strip()]
    print(said)
    why = [line for line in lines if re.search(telling, line)] or lines[-1:]
    raise ProofError(f"{sentence}: {why[0] if why else 'it printed nothing'}")


def cuda(asked: dict[str, Any], work: Path) -> dict[str, object]:
    """Compile for each of `archs` with the nvcc of `toolkit`; what is linked says `release`."""
    nvcc, source = f"{asked['toolkit']}/bin/nvcc", str(work / "source.cu")
    base, telling = [nvcc, "-ccbin", asked["compiler"]], r"(?i)error|fatal|unsupported|not found"
    if not asked["archs"]:
        raise ProofError("no architecture was given")
    for arch in asked["archs"]:
        made = work / f"sm_{arch}.cubin"
        command = [*base, f"-arch=sm_{arch}", "-cubin", "-o", str(made), source]
        run(command, telling, f"nvcc cannot make code for sm_{arch}")
        if not is_gpu_code(made):
            raise ProofError(f"nvcc made something else than GPU code for sm_{arch}")
    command = [*base, f"-arch=sm_{asked['archs'][0]}", "-o", str(work / "program"), source]
    run(command, telling, f"nvcc cannot link a program with {asked['compiler']}")
    said = run([str(work / "program")], "error", "the program that nvcc linked does not run", 60)
    if said != asked["release"]:
        raise ProofError(f"the program that nvcc linked is of CUDA {said}, not {asked['release']}")
    version = re.search(r", V([0-9.]+)", run([nvcc, "--version"], "error", "nvcc does not run"))
    return {"nvcc": version[1] if version else "", "archs": asked["archs"]}


def is_gpu_code(path: Path) -> bool:
    """Tell whether a file is an ELF file for GPUs."""
    header = path.read_bytes()[:20] if path.is_file() else b""
    return header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == CUDA_MACHINE


def libcuda(asked: dict[str, Any], work: Path) -> dict[str, object]:
    """Compare what two programs load: the same file, of the driver `version`, and of a package."""
    compiler, files = asked["compiler"], list[Path]()
    source, made = str(work / "source.c"), str(work / "program")
    for options, task, program in (
        (["-lcuda"], "link with -lcuda", "that is linked with -lcuda"),
        (["-DOPENS", "-ldl"], "compile a program", "that opens libcuda.so.1"),
    ):
        command = [compiler, "-O1", "-o", made, source, *options]
        run(command, "cannot find|error", f"{compiler} cannot {task}")
        said = run([made], "error", f"a program {program} does not run", 60).partition(" ")[2]
        files.append(Path(said).resolve())
        if not files[-1].is_file():
            raise ProofError(f"a program {program} got {said}, which is not a file")
    file, other = files
    if file != other:
        raise ProofError(
            f"a program linked with -lcuda loads {file}, one that opens libcuda.so.1 loads {other}"
        )
    if "stubs" in file.parts:
        raise ProofError(f"{file} is the toolkit's stub: it is for linking only")
    if "compat" in file.parts:
        raise ProofError(f"{file} is of a CUDA compatibility package, not of the driver")
    if file.name != f"libcuda.so.{asked['version']}":
        raise ProofError(f"programs load {file}, and the loaded driver is {asked['version']}")
    package = owner(str(file))
    if asked["owned"] and not package:
        raise ProofError(f"{file} belongs to no package")
    return {"library": str(file), "package": package, "driver": asked["version"]}


def owner(file: str) -> str:
    """Return the package of a file; dpkg may know it without /usr. Empty where there is none."""
    for path in (file, file[len("/usr") :] if file.startswith("/usr/") else file):
        command = ["dpkg-query", "-S", path]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in said.stdout.splitlines():
            if line.endswith(f": {path}"):
                return line[: -len(f": {path}")]
    return ""


def main(asked: dict[str, Any]) -> None:
    """Write what was found beside `output`, and rename it once it is whole and on disk."""
    output, new = Path(asked["output"]), Path(asked["output"] + ".new")
    work = Path(f"{output}.work")  # not in /tmp, which may be full, or forbid to run programs
    for name in PERSONAL:
        os.environ.pop(name, None)
    os.environ["TMPDIR"] = str(work)
    try:
        if shutil.which(asked["compiler"]) is None:
            raise ProofError(f"there is no compiler {asked['compiler']}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        name, prove = ("source.cu", cuda) if asked["proof"] == "cuda" else ("source.c", libcuda)
        (work / name).write_text(asked["source"])
        found = prove(asked, work)
        kept = {name: asked[name] for name in ("kind", "state")}
        with new.open("w") as file:
            json.dump({"schema_version": 1, "status": "pass", **kept, **found}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.replace(output)
    except (ProofError, OSError) as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(", ".join(f"{name} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
