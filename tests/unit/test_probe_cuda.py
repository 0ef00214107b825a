"""What the probe tells of CUDA toolkits and compilers."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import furnish_nvidia, gpu_host_fixture, look, toolkit  # noqa: F401
from probing import NOBODY, ROOT, Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown


def test_toolkits_are_told_in_the_order_of_their_releases(gpu_host: Tree) -> None:
    local = gpu_host.root / "usr/local"
    for name in ("cuda-13.10", "cuda-9.2", "cuda-13.1", "cuda-13", "cuda-old", "cuda-13.2-backup"):
        (local / name).mkdir()
    write(local / "cuda-12.8", "a file")
    assert look(gpu_host).cuda.toolkits == ("9.2", "13.0", "13.1", "13.10")


FILES = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime.h", "lib64/libcudart.so")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_declared_toolkit_lacks_is_told(gpu_host: Tree, name: str) -> None:
    (gpu_host.root / "usr/local/cuda-13.0" / name).unlink()
    cuda = look(gpu_host).cuda
    assert cuda.missing == (name,)
    assert cuda.nvcc == (None if name == "bin/nvcc" else "13.0")


@pytest.mark.parametrize("name", FILES)
def test_a_file_without_contents_is_lacking(gpu_host: Tree, name: str) -> None:
    (gpu_host.root / "usr/local/cuda-13.0" / name).write_bytes(b"")
    assert look(gpu_host).cuda.missing == (name,)


@pytest.mark.parametrize("name", FILES[:3])
def test_a_program_that_may_not_be_run_is_lacking(gpu_host: Tree, name: str) -> None:
    (gpu_host.root / "usr/local/cuda-13.0" / name).chmod(0o644)
    cuda = look(gpu_host).cuda
    assert cuda.missing == (name,)
    assert cuda.nvcc == (None if name == "bin/nvcc" else "13.0")


def test_a_toolkit_that_is_not_there_lacks_everything(gpu_host: Tree) -> None:
    cuda = look(gpu_host, cuda_release="13.1").cuda
    assert (cuda.missing, cuda.nvcc, cuda.toolkits) == (FILES, None, ("13.0",))


def test_the_link_and_what_alternatives_say_are_told_apart(gpu_host: Tree) -> None:
    root = gpu_host.root
    cuda = look(gpu_host).cuda
    assert (cuda.link, cuda.alternative) == ("/usr/local/cuda-13.0", "/usr/local/cuda-13.0")
    toolkit(gpu_host, "13.1")
    (root / "usr/local/cuda").unlink()
    (root / "usr/local/cuda").symlink_to("cuda-13.1")
    cuda = look(gpu_host).cuda
    assert (cuda.link, cuda.alternative) == ("/usr/local/cuda-13.1", "/usr/local/cuda-13.0")
    (root / "etc/alternatives/cuda").unlink()
    assert look(gpu_host).cuda.alternative is None


def test_a_plain_path_that_leads_nowhere_or_is_not_there(gpu_host: Tree) -> None:
    path = gpu_host.root / "usr/local/cuda"
    path.unlink()
    assert look(gpu_host).cuda.link is None
    path.symlink_to("/usr/local/cuda-12.0")
    assert look(gpu_host).cuda.link == "/usr/local/cuda-12.0"
    path.unlink()
    path.mkdir()
    assert look(gpu_host).cuda.link == "/usr/local/cuda"


def test_an_nvcc_in_front_of_the_declared_one_is_told(gpu_host: Tree) -> None:
    write(gpu_host.root / "usr/lib/nvidia-cuda-toolkit/bin/nvcc", "", 0o755)
    (gpu_host.root / "usr/bin").mkdir()
    (gpu_host.root / "usr/bin/nvcc").symlink_to("../lib/nvidia-cuda-toolkit/bin/nvcc")
    path = "/usr/lib/nvidia-cuda-toolkit/bin/nvcc"
    assert look(gpu_host).cuda.nvcc_on_path == path
    write(gpu_host.root / "usr/local/sbin/nvcc", "", 0o644)
    assert look(gpu_host).cuda.nvcc_on_path == path
    write(gpu_host.root / "usr/local/bin/nvcc", "", 0o755)
    assert look(gpu_host).cuda.nvcc_on_path == "/usr/local/bin/nvcc"


def test_an_nvcc_that_does_not_run_is_unknown(gpu_host: Tree) -> None:
    nvcc = gpu_host.root / "usr/local/cuda-13.0/bin/nvcc"
    write(nvcc, "#!/bin/sh\necho 'libfoo.so: cannot open'\nexit 127\n", 0o755)
    reason = Unknown(f"{nvcc}: libfoo.so: cannot open")
    assert look(gpu_host).cuda.nvcc == reason
    write(nvcc, "#!/bin/sh\necho hello\n", 0o755)
    assert look(gpu_host).cuda.nvcc == Unknown(f"{nvcc}: it said hello")


def test_compilers_tell_their_version(gpu_host: Tree) -> None:
    gpu_host.tool("gcc-13", '[ "$*" = "-dumpfullversion -dumpversion" ] && echo 13.3.0')
    gpu_host.tool("clang-18", '[ "$*" = -dumpversion ] && echo 18.1.3')
    cuda = look(gpu_host, compiler="gcc-13").cuda
    assert (cuda.gcc, cuda.compiler, cuda.gxx, cuda.glibc) == ("12.2.0", "13.3.0", True, "2.36")
    assert look(gpu_host, compiler="clang-18").cuda.compiler == "18.1.3"
    path = str(gpu_host.tools / "gcc-13")
    assert look(gpu_host, compiler=path).cuda.compiler == "13.3.0"
    assert look(gpu_host, compiler="gcc-14").cuda.compiler is None
    assert look(gpu_host, compiler="a b; $(exit)").cuda.compiler is None
    assert look(gpu_host).cuda.compiler is None


@pytest.mark.skipif(not ROOT, reason="only root must not run what another user can change")
def test_root_does_not_run_a_users_compiler_as_root() -> None:
    base = Path(tempfile.mkdtemp(prefix="probe-"))
    try:
        base.chmod(0o755)
        gpu_host = Tree(base / "host")
        furnish_nvidia(gpu_host)
        mark = base / "ran-as-root"
        text = f"#!/bin/sh\n(echo >{mark}) 2>&-\necho 13.3.0\n"
        compiler = write(base / "theirs/gcc-13", text, 0o755)
        assert look(gpu_host, compiler=str(compiler)).cuda.compiler == "13.3.0"
        assert mark.exists()
        mark.unlink()
        # Whoever the file belongs to: it runs as the user who is declared, and as nobody else.
        for owner in (0, NOBODY):
            os.chown(compiler.parent, owner, owner)
            cuda = look(gpu_host, compiler=str(compiler), owner="nobody").cuda
            assert cuda.compiler == "13.3.0"
            assert not mark.exists()
    finally:
        shutil.rmtree(base)


def test_what_login_shells_are_told_of_cuda_is_read_and_not_run(
    gpu_host: Tree,
) -> None:
    assert look(gpu_host).cuda.shell_lines == ()
    folder = gpu_host.root / "etc/profile.d"
    lines = [
        "# export PATH=/usr/local/cuda-11.8/bin:$PATH",
        "TOKEN=secret PATH=/usr/local/cuda-12.4/bin:$PATH; touch /ran",
        "PATH=$PATH:/opt/tool/bin",
        "export CUDA_HOME=/usr/local/cuda-12.6",
        "export CUDA_HOME=/opt/tool",
    ]
    write(folder / "lab.sh", "\n".join(lines))
    write(gpu_host.root / "etc/environment", 'LD_LIBRARY_PATH="/usr/local/cuda/lib64"\n')
    assert look(gpu_host).cuda.shell_lines == (
        '/etc/environment:LD_LIBRARY_PATH="/usr/local/cuda/lib64"',
        "/etc/profile.d/lab.sh:PATH=/usr/local/cuda-12.4/bin:$PATH; touch /ran",
        "/etc/profile.d/lab.sh:CUDA_HOME=/usr/local/cuda-12.6",
    )
