"""Builds the stand-in as PyTorch's own setup.py builds PyTorch: CMake, ninja, then a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent


def configure() -> None:
    """Call CMake with what the environment has for it, unless it was called before."""
    if (HERE / "build/build.ninja").exists():
        return
    forwarded = ("USE_", "BUILD_", "CMAKE_")
    given = [f"-D{key}={value}" for key, value in os.environ.items() if key.startswith(forwarded)]
    words = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_INSTALL_PREFIX=torch"]
    subprocess.check_call([*words, *sorted(given)], cwd=HERE)


def commit() -> str:
    """Return what is checked out."""
    words = ["git", "rev-parse", "HEAD"]
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True).stdout.strip()


class Build(build_py):
    """Compiles and installs before the Python files are taken."""

    def run(self) -> None:
        """Do so."""
        configure()
        words = ["cmake", "--build", "build", "--target", "install"]
        subprocess.check_call(words, cwd=HERE)
        version = os.environ["PYTORCH_BUILD_VERSION"]
        text = f"__version__ = '{version}'\ngit_version = '{commit()}'\ncuda = None\n"
        (HERE / "torch/version.py").write_text(text)
        super().run()


class Binary(Distribution):
    """Its wheel is one for this machine and this Python."""

    def has_ext_modules(self) -> bool:
        """Return that it is."""
        return True


if "--cmake-only" in sys.argv:
    configure()
    sys.exit()
setup(
    version=os.environ.get("PYTORCH_BUILD_VERSION", "0"),
    packages=["torch"],
    package_data={"torch": ["lib/*.so"]},
    distclass=Binary,
    cmdclass={"build_py": Build},
)
