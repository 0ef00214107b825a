"""Real PyTorch source for throwaway hosts: what Debian 13 has of it, as a git repository.

Debian takes the folder third_party out of PyTorch, and with it TensorPipe and libuv. They are put
back from Debian's own source packages, so that the tree builds a store with libuv as PyTorch's own
does. Everything comes from the archives that this machine's apt knows, checked by apt.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.aptconfig import AptConfiguration, of_release, read_machine
from pyinfra_gpu_rehearsal.base_image import BaseImage, Say, ensure_base_image
from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.kind import Kind
from pyinfra_gpu_rehearsal.requirements import ensure_packages, install_packages
from pyinfra_gpu_rehearsal.state import cache_folder, locked
from pyinfra_gpu_rehearsal.wheelhouse import BUILD_REQUIREMENTS, UV

RELEASE = "debian13"
CODENAME = "trixie"
VERSION = "2.6.0"
SOURCES = {"pytorch": CODENAME, "libuv1": CODENAME, "tensorpipe": "sid"}
"""Source packages, and the release that each is from: the TensorPipe that PyTorch pins from 2.12 on
is in sid."""

_RECIPE = 4
"""Raised where the tree is put together in another way than before."""

BUILD_PACKAGES = (
    "ccache", "g++", "git", "python3-dev", "python3-venv", "pkgconf", "libssl-dev",
    "flatbuffers-compiler",
    "libblas-dev", "libcpp-httplib-dev", "libcpuinfo-dev", "libeigen3-dev", "libflatbuffers-dev",
    "libfmt-dev", "libfp16-dev", "libfxdiv-dev", "libgloo-dev", "liblapack-dev", "libnop-dev",
    "libonnx-dev", "libprotobuf-dev", "libpsimd-dev", "libpthreadpool-dev", "libsleef-dev",
    "libtensorpipe-dev", "nlohmann-json3-dev", "protobuf-compiler", "pybind11-dev",
)  # fmt: skip
"""What Debian's tree takes from the system, and what compiles it."""

FLAGS = {
    "BLAS": "Generic",
    "BUILD_CUSTOM_PROTOBUF": "0",
    "GENERIC_BLAS_LIBRARIES": "blas",
    "USE_FBGEMM": "0",
    "USE_ITT": "0",
    "USE_KINETO": "0",
    "USE_MKLDNN": "0",
    "USE_NNPACK": "0",
    "USE_PYTORCH_QNNPACK": "0",
    # The tree's own check of its submodules is passed over where this has any value.
    "USE_SYSTEM_LIBS": "0",
    **dict.fromkeys(
        (
            "USE_SYSTEM_BENCHMARK", "USE_SYSTEM_CPUINFO", "USE_SYSTEM_EIGEN_INSTALL",
            "USE_SYSTEM_FP16", "USE_SYSTEM_FXDIV", "USE_SYSTEM_GLOO", "USE_SYSTEM_ONNX",
            "USE_SYSTEM_PSIMD", "USE_SYSTEM_PTHREADPOOL", "USE_SYSTEM_PYBIND11",
            "USE_SYSTEM_SLEEF",
        ),
        "1",
    ),
    "USE_XNNPACK": "0",
}  # fmt: skip
"""`pytorch_flags` with which Debian's tree can be configured without its own build rules."""


@dataclass(frozen=True)
class Repository:
    """The tree as a bare git repository.

    + packages: the source packages it is made of, with their versions
    """

    path: Path
    commit: str
    packages: tuple[str, ...]


def declared(url: str, tree: Repository) -> tuple[str, ...]:
    """Return what a host declares to build the tree, as KEY=VALUE.

    + url: where the repository is served
    """
    data = {
        "training_requirements": "null",
        "pytorch_source": "source",
        "pytorch_version": VERSION,
        "pytorch_git_url": url,
        "pytorch_commit": tree.commit,
        "pytorch_flags": json.dumps(FLAGS),
    }
    return tuple(f"{name}={value}" for name, value in data.items())


def _image(say: Say) -> BaseImage:
    return ensure_base_image(of_release(read_machine(), RELEASE), say, BUILD_PACKAGES)


DEBIAN_13 = Kind(
    release=RELEASE,
    packages=BUILD_PACKAGES,
    wheels=(UV, *BUILD_REQUIREMENTS, "numpy", "pyyaml", "requests", "typing-extensions"),
)
"""Hosts of Debian 13 that have what builds PyTorch, and no torch in their index."""


def ensure_repository(say: Say) -> Repository:
    """Return the tree, fetched and put together first where the cache has none."""
    ensure_packages(say)
    image, folder = _image(say), cache_folder() / f"pytorch-{VERSION}-{RELEASE}-{_RECIPE}"
    bare, named = folder / "pytorch.git", folder / "packages.txt"
    with locked(cache_folder() / f"{folder.name}.lock"):
        if not named.exists():
            say(f"fetching Debian's source of PyTorch {VERSION} (once) ...")
            install_packages(_missing(), say, whose="Debian's source packages")
            with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as work:
                names = _put_together(image, Path(work))
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                commit = publish(Path(work) / "pytorch", bare)
                named.write_text("\n".join([commit, *names]) + "\n")
    commit, *names = named.read_text().split("\n")[:-1]
    return Repository(bare, commit, tuple(names))


def _missing() -> list[str]:
    return [] if shutil.which("dpkg-source") else ["dpkg-dev"]


def _put_together(image: BaseImage, work: Path) -> list[str]:
    """Make the tree WORK/pytorch; return the names of what it is made of."""
    _fetch(read_machine(), work)
    names = []
    for package in SOURCES:
        (described,) = work.glob(f"{package}_*.dsc")
        names.append(described.stem)
        run(
            ["dpkg-source", "--no-check", "-x", described.name, package],
            purpose=f"unpacking {described.name}",
            cwd=work,
            timeout=300,
        )
    # Debian's own version in place of the declared one.
    patch = "debian/patches/2000-version.patch"
    words = ["patch", "--reverse", "--quiet", "-p1", f"--input={patch}"]
    run(words, purpose=f"taking {patch} back", cwd=work / "pytorch")
    _for_a_wheel(work / "pytorch")
    third_party = work / "pytorch/third_party"
    inner = third_party / "tensorpipe/third_party"
    shutil.move(work / "tensorpipe", third_party / "tensorpipe")
    (inner / "libuv").rmdir()
    shutil.move(work / "libuv1", inner / "libuv")
    # Debian's libnop is nothing but its headers.
    shutil.copytree(image.root / "usr/include/nop", inner / "libnop/include/nop")
    _generate(image, work / "pytorch/torch/csrc/jit/serialization")
    for each in [*(work / "pytorch").rglob(".gitignore")]:  # all that is there is the tree
        each.unlink()
    return names


_UPSTREAMS = {
    "CMakeLists.txt": {
        '"Whether to add SOVERSION to the shared objects" ON': (
            '"Whether to add SOVERSION to the shared objects" OFF'
        ),
    },
    "cmake/Dependencies.cmake": {
        'set(CMAKE_INSTALL_RPATH "")': 'set(CMAKE_INSTALL_RPATH "${_rpath_portable_origin}")',
        "set(CMAKE_INSTALL_RPATH_USE_LINK_PATH FALSE)": (
            "set(CMAKE_INSTALL_RPATH_USE_LINK_PATH TRUE)"
        ),
    },
}
"""By file, what Debian's patch wrote, and what upstream has there."""


def _for_a_wheel(tree: Path) -> None:
    """Have libraries find one another beside themselves, as in a wheel, and be there once.

    Debian moves them to /usr/lib, where none needs a path, and where each has three names: two of
    them are links, which a wheel cannot hold.
    """
    for name, lines in _UPSTREAMS.items():
        text = (tree / name).read_text()
        for debians, upstreams in lines.items():
            if debians not in text:
                raise LabError(f"{name} of Debian's PyTorch {VERSION} is another: no {debians!r}")
            text = text.replace(debians, upstreams)
        (tree / name).write_text(text)


def _generate(image: BaseImage, folder: Path) -> None:
    """Make the header of mobile bytecode anew, as debian/rules does before it configures.

    The one in the tree is by the FlatBuffers that upstream carries along, and does not compile with
    Debian's. The compiler is the image's, and so are its libraries.
    """
    (loader,) = (image.root / "usr").glob("lib*/ld-linux-*")
    libraries = ":".join(str(each) for each in (image.root / "usr/lib").glob("*-linux-gnu"))
    flatc = [str(loader), "--library-path", libraries, str(image.root / "usr/bin/flatc")]
    options = ["--cpp", "--gen-mutable", "--scoped-enums", "mobile_bytecode.fbs"]
    run([*flatc, *options], purpose="generating mobile_bytecode_generated.h", cwd=folder)


def _fetch(apt: AptConfiguration, work: Path) -> None:
    """Download the source packages into WORK, with an apt that knows nothing of the machine's."""
    with _apt(apt, work / "apt") as environment:
        update = ["apt-get", "-qq", "update"]
        run(update, purpose="reading the lists of sources", env=environment, timeout=300)
        wanted = [f"{package}/{release}" for package, release in SOURCES.items()]
        run(
            ["apt-get", "-qq", "source", "--download-only", *wanted],
            purpose="fetching source packages",
            env=environment,
            cwd=work,
            timeout=600,
        )


@contextmanager
def _apt(machine: AptConfiguration, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of an apt that has the archives' sources and its files in FOLDER."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    of_own = next(each for each in machine.sources if machine.codename in each.suites)
    option = f" [signed-by={of_own.signed_by}]" if of_own.signed_by else ""
    lines = [f"deb-src{option} {of_own.uri} {suite} main" for suite in set(SOURCES.values())]
    (folder / "sources.list").write_text("\n".join(lines) + "\n")
    (folder / "status").touch()
    settings = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",  # its own user may not write into our folder
    }
    named = folder / "apt.conf"
    named.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    yield {**os.environ, "APT_CONFIG": str(named)}
