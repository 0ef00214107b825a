"""Shows on a host that nvcc compiles, or which libcuda programs load; run by the owner.

    python3 -I -S -c PROGRAM ASKED

ASKED is JSON: `proof` ("cuda" or "libcuda"), `work` (a folder to make, and to remove), `source`
(its text), `compiler`, and what `cuda` or `libcuda` below reads. The last line says what was seen,
or what is wrong; exits with 0 only when all of it holds.
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
TELLING = re.compile(r"(?i)error|fatal|unsupported|not found|cannot find")


class ProofError(Exception):
    """What does not hold, as a sentence."""


def run(command: Sequence[str], sentence: str, seconds: float = 600) -> str:
    """Return what a program prints; where it fails, show that and raise `sentence` with the line
    that says most.
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
    why = [line for line in lines if TELLING.search(line)] or lines[-1:]
    raise ProofError(f"{sentence}: {why[0] if why else 'it printed nothing'}")


def cuda(asked: dict[str, Any], work: Path) -> str:
    """Compile for each of `archs` with the nvcc of `toolkit`; what is linked says `release`."""
    source, made, archs = str(work / "source.cu"), work / "made", asked["archs"]
    base = [f"{asked['toolkit']}/bin/nvcc", "-ccbin", asked["compiler"], source, "-o", str(made)]
    for arch in archs:
        run([*base, f"-arch=sm_{arch}", "-cubin"], f"nvcc cannot make code for sm_{arch}")
        if made.read_bytes()[:4] != b"\x7fELF":
            raise ProofError(f"nvcc made something else than GPU code for sm_{arch}")
        made.unlink()
    run([*base, f"-arch=sm_{archs[0]}"], f"nvcc cannot link a program with {asked['compiler']}")
    said = run([str(made)], "the program that nvcc linked does not run", 60)
    if said != asked["release"]:
        raise ProofError(f"the program that nvcc linked is of CUDA {said}, not {asked['release']}")
    return f"nvcc of CUDA {said} makes code for {', '.join(f'sm_{arch}' for arch in archs)}"


def libcuda(asked: dict[str, Any], work: Path) -> str:
    """Compare what two programs load: the same file, of the driver `version`, and of a package."""
    compiler, files = asked["compiler"], list[Path]()
    for options, task, program in (
        (["-lcuda"], "link with -lcuda", "that is linked with -lcuda"),
        (["-DOPENS", "-ldl"], "compile a program", "that opens libcuda.so.1"),
    ):
        command = [compiler, "-O1", "-o", str(work / "made"), str(work / "source.c"), *options]
        run(command, f"{compiler} cannot {task}")
        said = run([str(work / "made")], f"a program {program} does not run", 60)
        files.append(Path(said.partition(" ")[2]).resolve(strict=True))
    file, other = files
    if file != other:
        raise ProofError(
            f"a program linked with -lcuda loads {file}, one that opens libcuda.so.1 loads {other}"
        )
    if {"stubs", "compat"} & {*file.parts}:
        raise ProofError(f"programs load {file}, which is of a CUDA toolkit, not of the driver")
    if file.name != f"libcuda.so.{asked['version']}":
        raise ProofError(f"programs load {file}, and the loaded driver is {asked['version']}")
    if asked["owned"] and not is_of_a_package(str(file)):
        raise ProofError(f"{file} belongs to no package")
    return f"programs load {file}"


def is_of_a_package(file: str) -> bool:
    """Ask dpkg, which may know a file without /usr."""
    paths = (file, file[len("/usr") :] if file.startswith("/usr/") else file)
    commands = (["dpkg-query", "-S", path] for path in paths)
    return any(
        subprocess.run(e, capture_output=True, check=False).returncode == 0 for e in commands
    )


def main(asked: dict[str, Any]) -> None:
    """Prove it in a folder of its own: /tmp may be full, or forbid to run programs."""
    work = Path(asked["work"])
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
        print(prove(asked, work))
    except (ProofError, OSError) as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
