#!/usr/bin/python3 -I
"""What a kernel does with the modules of a GPU, on a machine whose kernel loads none.

Installed on a simulated machine as modprobe, rmmod and rehearsal-cold-plug. The modules are real
files that the real modinfo finds and reads; loading one makes what the real one would make.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

# Module -> the modules it needs, as the driver's own modules need each other.
NEEDS = {
    "nvidia": (),
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset",),
}
DEVICES = {"nvidia_uvm": ("nvidia-uvm", "nvidia-uvm-tools"), "nvidia_modeset": ("nvidia-modeset",)}
TURING, BLACKWELL = (7, 5), (10, 0)  # compute capabilities: the first each flavour rule is about


class RefusedError(Exception):
    """The kernel does not do it; the text is what it says."""


def said_by(*command: str | Path) -> str:
    """Return what a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def normal(name: str) -> str:
    """Return the module's NAME as the kernel spells it."""
    return name.removesuffix(".ko").replace("-", "_")


def blacklisted(text: str, name: str) -> bool:
    """Tell whether modprobe's configuration TEXT keeps the module NAME from loading by itself."""
    lines = (line.split() for line in text.splitlines())
    of_it = [(words[0], *words[2:3]) for words in lines if words[1:] and normal(words[1]) == name]
    off = {("alias", "off"), ("install", "/bin/false"), ("install", "/bin/true")}
    return any(each[0] == "blacklist" or each in off for each in of_it)


class Kernel:
    """The kernel of the machine below ROOT."""

    def __init__(self, root: Path = Path("/"), release: str = "") -> None:
        self.root = root
        self.release = release or os.uname().release
        self.modules = root / "sys/module"
        self.proc = root / "proc/driver/nvidia"
        self.dev = root / "dev"

    # -- what is there

    def loaded(self, name: str) -> bool:
        """Tell whether the module NAME is loaded."""
        return (self.modules / name).is_dir()

    def file(self, name: str) -> Path | None:
        """Return the file of the module NAME for the running kernel, None where there is none."""
        path = said_by("modinfo", "-b", self.root, "-k", self.release, "-n", name).strip()
        return Path(path) if path.startswith("/") else None

    def field(self, path: Path, name: str) -> str:
        """Return what the module file PATH says in its field NAME."""
        return said_by("modinfo", "-F", name, path).strip()

    def cards(self) -> list[Path]:
        """Return the folders of the simulated cards on the bus, in the order of their addresses."""
        return sorted(path.parent for path in self.root.glob("sys/bus/pci/devices/*/rehearsal"))

    def driver_of(self, card: Path) -> str | None:
        """Return the driver that CARD is bound to."""
        link = card / "driver"
        return link.readlink().name if link.is_symlink() else None

    def devices(self, name: str) -> list[Path]:
        """Return the devices of the module NAME, which is loaded."""
        found = [self.dev / device for device in DEVICES.get(name, ())]
        if name == "nvidia":
            found += [self.dev / "nvidiactl", *self.dev.glob("nvidia[0-9]*")]
        return found

    def used(self, name: str) -> bool:
        """Tell whether a process has a device of the module NAME open."""
        devices = {str(device) for device in self.devices(name)}
        for link in self.root.glob("proc/[0-9]*/fd/*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if str(link.readlink()) in devices:
                    return True
        return False

    # -- loading

    def load(self, name: str) -> None:
        """Load the module NAME and what it needs. Raises RefusedError as the kernel refuses."""
        if self.loaded(name):
            return
        path = self.file(name)
        if path is None:
            where = f"/lib/modules/{self.release}"
            raise RefusedError(f"FATAL: Module {name} not found in directory {where}")
        for needed in NEEDS.get(name, ()):
            self.load(needed)
        if self.field(path, "vermagic").split(" ")[0] != self.release:
            raise RefusedError(f"ERROR: could not insert '{name}': Exec format error")
        if name == "nvidia":
            self._load_nvidia(path)
        elif name == "nouveau":
            self._drive([card for card in self.cards() if not self.driver_of(card)], name)
        folder = self.modules / name
        folder.mkdir()
        (folder / "initstate").write_text("live\n")
        if version := self.field(path, "version"):
            (folder / "version").write_text(f"{version}\n")
        for device in DEVICES.get(name, ()):
            self._make_device(device)

    def _load_nvidia(self, path: Path) -> None:
        is_open, able = self.field(path, "license") != "NVIDIA", []
        free = [card for card in self.cards() if not self.driver_of(card)]
        for card in free:
            words = (card / "rehearsal").read_text().strip().split("|")
            capability = tuple(map(int, words[3].split(".")))
            if capability >= TURING if is_open else capability < BLACKWELL:
                able.append(card)
        if not free or (is_open and not able):
            raise RefusedError("ERROR: could not insert 'nvidia': No such device")
        kind = "Open Kernel Module for x86_64" if is_open else "x86_64 Kernel Module"
        self.proc.mkdir(parents=True)
        text = f"NVRM version: NVIDIA UNIX {kind}  {self.field(path, 'version')}  (rehearsal)\n"
        (self.proc / "version").write_text(text)
        self._drive(able, "nvidia")
        for device in ("nvidiactl", *(f"nvidia{index}" for index in range(len(able)))):
            self._make_device(device)

    def _drive(self, cards: list[Path], driver: str) -> None:
        for card in cards:
            (card / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")

    def _make_device(self, name: str) -> None:
        (self.dev / name).touch()
        (self.dev / name).chmod(0o666)

    def unload(self, name: str) -> None:
        """Unload the module NAME, which is loaded. Raises RefusedError where it is in use."""
        dependents = [each for each, needs in NEEDS.items() if name in needs and self.loaded(each)]
        if dependents:
            raise RefusedError(f"Module {name} is in use by: {' '.join(dependents)}")
        if self.used(name):
            raise RefusedError(f"Module {name} is in use")
        for card in self.cards():
            if self.driver_of(card) == name:
                (card / "driver").unlink()
        for device in self.devices(name):
            device.unlink(missing_ok=True)
        folders = [self.modules / name, *([self.proc] if name == "nvidia" else [])]
        subprocess.run(["rm", "-rf", *folders], check=True)  # this Python may be without shutil

    # -- configuration

    def configuration(self) -> str:
        """Return modprobe's configuration; a file in /etc hides its namesake of a package."""
        files: dict[str, Path] = {}
        for folder in ("usr/lib/modprobe.d", "run/modprobe.d", "etc/modprobe.d"):
            files |= {path.name: path for path in (self.root / folder).glob("*.conf")}
        return "\n".join(path.read_text(errors="replace") for path in files.values())

    def cold_plug(self) -> None:
        """Load what the machine loads at boot for the cards on its bus, as udev would."""
        if not self.cards():
            return
        tree = self.root / "usr/lib/modules" / self.release
        if not (tree / "modules.dep").exists():
            said_by("depmod", self.release)
        # The configuration as it was when the initramfs was last written.
        at_boot = said_by("tar", "-xzOf", self.root / f"boot/initrd.img-{self.release}")
        wanted = [] if blacklisted(at_boot, "nouveau") else ["nouveau"]
        wanted += [name for name in NEEDS if not blacklisted(self.configuration(), name)]
        for name in wanted:
            with contextlib.suppress(RefusedError):
                self.load(name)


def modprobe(kernel: Kernel, words: list[str]) -> int:
    """Do what modprobe does with the command line WORDS, of whose options -r alone counts."""
    names = [normal(word) for word in words if not word.startswith("-")]
    remove = "-r" in words
    try:
        for name in names if remove else names[:1]:  # the rest are parameters of the module
            _remove_chain(kernel, name) if remove else kernel.load(name)
    except RefusedError as refused:
        sys.stderr.write(f"modprobe: {'FATAL: ' * remove}{refused}{'.' * remove}\n")
        return 1
    return 0


def _remove_chain(kernel: Kernel, name: str) -> None:
    """Unload NAME and then what it needed and nothing else uses, as modprobe -r does."""
    if not kernel.loaded(name):
        if kernel.file(name) is None:
            raise RefusedError(f"Module {name} not found")
        return
    kernel.unload(name)
    for needed in NEEDS.get(name, ()):
        if kernel.loaded(needed):
            with contextlib.suppress(RefusedError):
                _remove_chain(kernel, needed)


def rmmod(kernel: Kernel, words: list[str]) -> int:
    """Do what rmmod does with the command line WORDS; return its exit code."""
    status = 0
    for name in (normal(Path(word).name) for word in words if not word.startswith("-")):
        try:
            if not kernel.loaded(name):
                raise RefusedError(f"Module {name} is not currently loaded")
            kernel.unload(name)
        except RefusedError as refused:
            sys.stderr.write(f"rmmod: ERROR: {refused}\n")
            status = 1
    return status


def main() -> int:
    """Be the program that this was called as."""
    program, words, kernel = Path(sys.argv[0]).name, sys.argv[1:], Kernel()
    if program == "rehearsal-cold-plug":
        kernel.cold_plug()
        return 0
    if os.geteuid() != 0:
        sys.stderr.write(f"{program}: ERROR: Operation not permitted (rehearsal)\n")
        return 1
    return rmmod(kernel, words) if program == "rmmod" else modprobe(kernel, words)


if __name__ == "__main__":
    raise SystemExit(main())
