"""The kernels of the simulated machines, as a distribution packages them.

The running one is the real machine's, whose release is whatever `uname -r` says; a newer one can
be installed, and is never booted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.debs import ON_HOST, Link, Package, script

NOUVEAU = "kernel/drivers/gpu/drm/nouveau/nouveau.ko"
CARDS = "pci:v000010DEd*sv*sd*bc03sc*i*"
DESKTOP = "rehearsal-desktop"
HELPER = "nvidia-kernel-common"  # what Debian has beside any driver; NVIDIA's conflicts with it


def newer_release(release: str) -> str:
    """Return the release of a kernel newer than RELEASE ("6.18.44-1" -> "6.19.1-1-amd64")."""
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        raise LabError(f"the kernel's release {release!r} does not begin with a version")
    return f"{match[1]}.{int(match[2]) + 1}.1-1-amd64"


def package_version(release: str) -> str:
    """Return the version a package of the kernel RELEASE has."""
    return f"{release.split('-')[0]}-1"


def vermagic(release: str) -> str:
    """Return what a module for the kernel RELEASE says it is for."""
    return f"{release} SMP preempt mod_unload modversions "


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """The two kernels, and what the running one looks like on a machine."""

    release: str
    running_tree: Path

    @classmethod
    def of_this_machine(cls, folder: Path) -> Kernels:
        """Return the kernels for what runs here; ON_HOST holds the running one's files.

        Raises LabError where no package can be named after the running kernel.
        """
        release = os.uname().release
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", release):
            raise LabError(
                f"no package can be named after the running kernel {release!r},"
                " so no simulated GPU is possible on this machine"
            )
        return cls(release=release, running_tree=folder)

    @property
    def newer(self) -> str:
        """The release of the newer kernel."""
        return newer_release(self.release)

    @property
    def running_package(self) -> str:
        """The package the running kernel's files belong to."""
        return f"linux-image-{self.release}"

    @property
    def installed_stanza(self) -> str:
        """What dpkg's list says of the running kernel's package."""
        package = self._image(self.release, Path())
        first, rest = package.control().split("\n", 1)
        return f"{first}\nStatus: install ok installed\n{rest}"

    def lay_out_running(self) -> None:
        """Make the running kernel's files."""
        for name, text in self._image_texts(self.release).items():
            path = self.running_tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._compile_nouveau(self.release, self.running_tree / self._nouveau(self.release))

    @staticmethod
    def _nouveau(release: str) -> str:
        return f"usr/lib/modules/{release}/{NOUVEAU}"

    @staticmethod
    def _image_texts(release: str) -> dict[str, str]:
        return {
            f"boot/vmlinuz-{release}": "rehearsal\n",
            f"boot/config-{release}": "# rehearsal\nCONFIG_MODULES=y\n",
            f"usr/lib/modules/{release}/modules.order": f"{NOUVEAU}\n",
            f"usr/lib/modules/{release}/modules.builtin": "",
            f"usr/lib/modules/{release}/modules.builtin.modinfo": "",
        }

    @staticmethod
    def _compile_nouveau(release: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        words = {"NAME": "nouveau", "LICENSE": "GPL and additional rights", "DEPENDS": ""}
        words |= {"VERMAGIC": vermagic(release), "ALIAS": CARDS}
        defines = [f'-D{name}="{value}"' for name, value in words.items()]
        command: list[str | Path] = ["gcc", "-c", *defines, "-o", target, ON_HOST / "nvidia.c"]
        run(command, purpose="compiling the simulated nouveau")

    def _image(self, release: str, nouveau: Path) -> Package:
        return Package(
            name=f"linux-image-{release}",
            version=package_version(release),
            description=f"the kernel {release}",
            relations={"Depends": "kmod"},
            files={**self._image_texts(release), self._nouveau(release): nouveau},
            scripts={
                "postinst": script("linux-image.postinst", release=release),
                "postrm": f"rm -f /boot/initrd.img-{release}\n",
            },
        )

    @staticmethod
    def _headers(release: str) -> Package:
        source = f"usr/src/linux-headers-{release}"
        return Package(
            name=f"linux-headers-{release}",
            version=package_version(release),
            description=f"headers of the kernel {release}",
            # As the real ones depend on the compiler that the kernel is built with. Of dkms's own
            # relations that one is, from Debian 13 on, no more than recommended.
            relations={"Depends": "make, gcc"},
            files={
                f"{source}/Makefile": ON_HOST / "headers.mk",
                f"{source}/include/vermagic": f"{vermagic(release)}\n",
                f"{source}/scripts/sign-file": ON_HOST / "sign-file",
                f"usr/lib/modules/{release}/build": Link(f"/{source}"),
            },
            programs=(f"{source}/scripts/sign-file",),
            scripts={"postinst": script("linux-headers.postinst", release=release)},
        )

    def packages(self, work: Path) -> list[Package]:
        """Return the packages of the distribution; WORK is for what has to be compiled.

        The packages without a release in their names lead to the newest kernel.
        """
        nouveau = work / "nouveau-newer.ko"
        self._compile_nouveau(self.newer, nouveau)
        own = work / "nouveau.ko"
        self._compile_nouveau(self.release, own)
        found = [
            self._image(self.release, own),
            self._headers(self.release),
            self._image(self.newer, nouveau),
            self._headers(self.newer),
            Package(name=DESKTOP, version="1-1", description="somebody's desktop"),
            Package(name=HELPER, version="20220217+3~deb12u1"),
        ]
        for release in (self.release, self.newer):
            found += [
                Package(
                    name=f"linux-{kind}-amd64",
                    version=package_version(release),
                    relations={"Depends": f"linux-{kind}-{release}"},
                )
                for kind in ("image", "headers")
            ]
        return found
