"""What the probe tells of the virtual environment: torch by its files, python by running it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import verdicts

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import (
    RECORD,
    TORCH,
    Tree,
    recorded,
    tree_fixture,  # noqa: F401
    write,
)

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.on_host import program


def test_torch_is_identified_by_its_text_and_never_imported(tree: Tree) -> None:
    tree.venv()
    torch = tree.look().torch
    assert torch.python == sys.version.split()[0]
    assert torch.python_problem is None
    assert torch.version == "2.13.0+cpu"
    assert torch.git_version == "cf30153c4c131c8164ee7798e5022d810682e2cb"
    assert torch.damaged == ()
    assert torch.installing is False
    assert torch.distributions == {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0"}


def test_both_interpreters_are_told_by_what_is_behind_them(tree: Tree) -> None:
    tree.venv()
    real = os.path.realpath(sys.executable)
    beside = tree.base / "beside"  # a virtual environment's python, as someone may declare it
    subprocess.run([real, "-m", "venv", "--without-pip", beside], check=True)
    shim = write(tree.base / "shims/python3", f'#!/bin/sh\nexec {real} "$@"\n', 0o755)
    for path in (real, f"{beside}/bin/python", str(shim)):
        torch = tree.look(python=path).torch
        assert (torch.base, torch.declared) == (real, real)
    torch = tree.look(python="/opt/none/bin/python3").torch
    assert (torch.base, torch.declared) == (real, None)
    broken = write(tree.base / "broken", "#!/bin/sh\nexit 3\n", 0o755)
    torch = tree.look(python=str(broken)).torch
    assert isinstance(torch.declared, Unknown)
    assert tree.look().torch.declared is None


@pytest.mark.parametrize("value", ["open('/etc/passwd').read()", "'2.13.0\x01+cpu'", "'2.13"])
def test_a_version_that_is_no_plain_text_is_none(tree: Tree, value: str) -> None:
    """Wheels write it plainly: another line is damage, which an installation repairs."""
    tree.venv({**TORCH, "torch/version.py": f"__version__ = {value}\n"})
    torch = tree.look().torch
    assert torch.version is None
    assert torch.git_version == Unknown("torch/version.py has no plain line for git_version")


def test_a_missing_file_and_one_of_another_size_are_damage(tree: Tree) -> None:
    site = tree.venv()
    (site / "torch/lib/libtorch_cpu.so").unlink()
    (site / "torch/__init__.py").write_text("x")
    assert tree.look().torch.damaged == ("torch/__init__.py", "torch/lib/libtorch_cpu.so")


def test_a_library_that_no_wheel_brought_is_told_and_one_that_was_set_aside_is_not(
    tree: Tree,
) -> None:
    site = tree.venv({**TORCH, "torch/_C.cpython-311-x86_64-linux-gnu.so": "x"})
    assert tree.look().torch.foreign == ()
    (site / "torch/lib/libnccl.so.2").write_text("x")
    (site / "torch/lib/libold.so").symlink_to("/nowhere")
    (site / "torch/own.so").write_text("x")
    (site / "torch/lib/notes.txt").write_text("x")
    names = ("torch/own.so", "torch/lib/libnccl.so.2", "torch/lib/libold.so")
    torch = tree.look().torch
    assert (torch.foreign, torch.damaged) == (names, ())
    aside = program("pytorch/set_aside.sh", tree.paths.venv, *names)
    subprocess.run(["sh", "-c", aside], check=True)
    assert tree.look().torch.foreign == ()
    assert (site / "torch/lib/libnccl.so.2.before-pyinfra-gpu").read_text() == "x"


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"\xff\xfe,,\n,\n\n", None])
def test_a_list_of_files_lost_in_a_power_cut_is_damage(tree: Tree, content: bytes | None) -> None:
    site = tree.venv()
    (site / RECORD).unlink()
    if content is not None:
        (site / RECORD).write_bytes(content)
    assert tree.look().torch.damaged == (RECORD,)
    shutil.rmtree((site / RECORD).parent)
    torch = tree.look().torch
    assert (torch.damaged, torch.version) == (("torch-*.dist-info/RECORD",), "2.13.0+cpu")


def test_a_file_touched_since_the_proof_has_to_have_its_digest(tree: Tree) -> None:
    site = tree.venv()
    files = {"one.py": b"as it was", "two.py": b"as it was", "big.so": b"\x7fELF" * 9}
    info = "numpy-2.4.0.dist-info"
    rows = [f"{name},{recorded(text)},{len(text)}\n" for name, text in files.items()]
    write(site / info / "RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    for name, text in files.items():
        write(site / name, text)
    (site / "one.py").write_bytes(b"as it WAS")  # before a proof, whoever proves it has it so
    assert tree.look().torch.damaged_others == {}
    stamp = write(Path(tree.paths.stamp), json.dumps(verdicts.stamp()))
    assert tree.look().torch.damaged_others == {}
    os.utime(stamp, (1, 1))
    (site / "two.py").chmod(0o600)
    torch = tree.look().torch
    assert (torch.damaged_others, torch.touched) == ({"numpy": "one.py"}, 0)
    before = (site / "two.py").stat()
    write(site / "one.py", files["one.py"])
    (site / "two.py").write_bytes(b"AS it was")
    # The time of its change is the kernel's: who changed it can set the other one back alone.
    os.utime(site / "two.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tree.look().torch.damaged_others == {"numpy": "two.py"}


def test_a_link_since_the_proof_has_to_lead_to_the_same(tree: Tree) -> None:
    site = tree.venv()
    library = site / "torch/lib/libtorch_cpu.so"
    other = write(tree.base / "other.so", b"\x7fELF")
    another = write(tree.base / "another.so", b"ELF\x7f")
    library.unlink()
    library.symlink_to(another)  # no wheel brings links, so it counts before any proof as well
    assert tree.look().torch.damaged == ("torch/lib/libtorch_cpu.so",)
    stamp = write(Path(tree.paths.stamp), json.dumps(verdicts.stamp()))
    time.sleep(0.02)
    os.utime(stamp)
    for target, damaged in ((other, ()), (another, ("torch/lib/libtorch_cpu.so",))):
        library.unlink()
        library.symlink_to(target)  # which is older than the proof, and of the same size
        assert tree.look().torch.damaged == damaged


def test_what_a_look_has_no_time_to_compare_is_counted(tree: Tree) -> None:
    """A deploy has more of it: what it does not compare counts as proven by its next test."""
    site = tree.venv()
    stamp = write(Path(tree.paths.stamp), json.dumps(verdicts.stamp()))
    os.utime(stamp, (1, 1))
    (site / "typing_extensions.py").write_text("y")
    hurried = tree.look(compare_s=2).torch
    assert hurried.damaged_others == {}
    assert hurried.touched == len(TORCH) + 2
    thorough = tree.look(compare_s=13).torch
    assert thorough.damaged_others == {"typing-extensions": "typing_extensions.py"}
    assert thorough.touched == 0


def test_odd_names_in_the_list_of_files_are_compared_too(tree: Tree) -> None:
    site = tree.venv()
    rows = [
        '"torch/a, ""b"".py",sha256=x,3',
        "torch/caf\N{LATIN SMALL LETTER E WITH ACUTE}.py,sha256=x,1",
        f"{RECORD},,",
    ]
    write(site / RECORD, "\r\n".join(rows))
    write(site / 'torch/a, "b".py', "123")
    assert tree.look().torch.damaged == ("torch/caf\N{LATIN SMALL LETTER E WITH ACUTE}.py",)


def test_two_versions_of_torch_side_by_side_are_told_as_two(tree: Tree) -> None:
    site = tree.venv()
    write(site / "torch-2.14.1.dist-info/RECORD", "torch-2.14.1.dist-info/RECORD,,\n")
    write(site / "~orch-2.12.0.dist-info/RECORD", "")
    distributions = tree.look().torch.distributions
    assert isinstance(distributions, dict)
    assert distributions["torch"] == "2.13.0+cpu and 2.14.1"
    assert sorted(distributions) == ["torch", "typing-extensions"]


def test_a_python_whose_base_vanished_is_named_with_the_link_that_dangles(
    tree: Tree,
) -> None:
    tree.venv()
    python = tree.prefix / "venv/bin/python"
    python.unlink()
    python.symlink_to("/usr/bin/python3.99")
    torch = tree.look().torch
    problem = f"{python} is a link to /usr/bin/python3.99, which is not there"
    assert torch.python_problem == problem
    assert torch.python == Unknown(problem)
    assert isinstance(torch.damaged, Unknown)
    assert torch.version == "2.13.0+cpu"
    assert torch.distributions == {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0"}


def test_packages_of_another_python_do_not_count(tree: Tree) -> None:
    """After an upgrade of the base, the environment's python looks into a folder of its own."""
    tree.venv()
    lib = tree.prefix / "venv/lib"
    next(lib.iterdir()).rename(lib / "python3.999")
    torch = tree.look().torch
    assert torch.version is None
    assert torch.distributions == {}


def test_another_torch_that_a_file_beside_the_packages_leads_to_is_told(
    tree: Tree,
) -> None:
    site = tree.venv()
    other = write(tree.base / "other/torch/__init__.py", "")
    assert tree.look().torch.elsewhere is None
    write(site / "aaa.pth", f"import sys; sys.path.insert(0, {str(tree.base / 'other')!r})\n")
    assert tree.look().torch.elsewhere == f"aaa.pth {other}"
    record = next(site.glob("Typing*/RECORD"))
    record.write_text(record.read_text() + "aaa.pth,,\n")
    assert tree.look().torch.elsewhere is None, "one of a package's is no one's surprise"
    (site / "aaa.pth").write_text(f"{tree.base / 'nothing'}\n")
    (site / "sitecustomize.py").write_text("raise SystemExit(1)")
    assert tree.look().torch.elsewhere is None


def test_what_torch_needs_is_told_where_a_wheel_beside_it_is_damaged(tree: Tree) -> None:
    """torch 2.14 asks for `cuda-toolkit[cublas,...]`: a damaged cuFFT was called a user's own."""
    site = tree.venv()
    whole = tree.look().torch
    assert (whole.damaged_others, whole.needs) == ({}, ())
    wheels = {
        "filelock": 'Requires-Dist: Tool.kit[cufft, nvtx]==13.0.3; platform_system == "Linux"',
        "tool_kit": (
            "Provides-Extra: cufft\nRequires-Dist: nvidia-cufft==12; extra == 'cufft'\n"
            "Requires-Dist: filelock[all]>1"
        ),
        "nvidia_cufft": "Name: nvidia-cufft",
        "Labs_own.tool": "Name: x",
    }
    for name, metadata in wheels.items():
        info = f"{name}-1.0.dist-info"
        tree.wheel(site, info, {f"{name}.py": "as it was", f"{info}/METADATA": f"{metadata}\n\n"})
    (site / "nvidia_cufft.py").unlink()
    (site / "Labs_own.tool.py").write_text("edited")
    torch = tree.look().torch
    assert torch.damaged == ()
    assert torch.damaged_others == {
        "labs-own-tool": "Labs_own.tool.py",
        "nvidia-cufft": "nvidia_cufft.py",
    }
    assert torch.needs == ("filelock", "nvidia-cufft", "tool-kit", "torch", "typing-extensions")


def python_is(program: str) -> Callable[[Path], object]:
    """Return what puts a script in the place of the environment's Python."""

    def replaced(venv: Path) -> None:
        real = (venv / "bin/python").resolve()
        (venv / "bin/python").unlink()
        write(venv / "bin/python", f"#!/bin/sh\n{program.format(real=real)}\n", 0o755)

    return replaced


def settings_let_packages_in(venv: Path) -> None:
    text = (venv / "pyvenv.cfg").read_text()
    (venv / "pyvenv.cfg").write_text(text.replace("false", "true"))


PROBLEMS: dict[str, Callable[[Path], object]] = {
    "Fatal Python error: init": python_is("echo 'Fatal Python error: init' >&2\nexit 1"),
    "it ended with status 3 and said nothing": python_is("exit 3"),
    "it was ended by signal 9": python_is("kill -9 $$"),
    "apart from the packages of the system, which pyvenv.cfg lets in": settings_let_packages_in,
    "as that of the environment, whose pyvenv.cfg is gone": lambda v: (v / "pyvenv.cfg").unlink(),
    "as that of the environment, being a script that starts another one": python_is(
        'exec {real} "$@"'
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_python_that_does_not_run_or_is_not_the_environments_says_why(
    tree: Tree, problem: str
) -> None:
    tree.venv()
    write(tree.prefix / "venv/.pyinfra-gpu-installing", "")
    PROBLEMS[problem](tree.prefix / "venv")
    torch = tree.look().torch
    assert (torch.python_problem, torch.installing) == (problem, True)
    assert isinstance(torch.python, Unknown)
    assert isinstance(torch.damaged, Unknown)


def test_a_build_at_work_is_told_from_one_that_ended(tree: Tree) -> None:
    tree.venv()
    folder = tree.base / "build"
    assert tree.look(build=str(folder)).build.state is None
    write(folder / "building", f"{'ab' * 32} compile     \n")
    for running in (True, False):
        with (folder / "building").open() as held:
            if running:
                fcntl.flock(held, fcntl.LOCK_EX)
            build = tree.look(build=str(folder)).build
        assert build.state == BuildState(fingerprint="ab" * 32, phase="compile", running=running)
        assert (build.stamp, build.wheel) == (None, None)
    write(folder / "building", "{")
    assert tree.look(build=str(folder)).build.state == Unknown("it does not say which build it is")
    assert tree.look().build.state is None  # where no build is declared
