"""The machine's own apt, on a root of its own: made-up repositories, a made-up dpkg status."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from pyinfra_gpu.packages.files import PREFERENCES

APT = shutil.which("apt-get")


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    relations: str = ""

    def stanza(self) -> str:
        return (
            f"Package: {self.name}\nVersion: {self.version}\nArchitecture: amd64\n"
            f"Maintainer: x <x@example.org>\nDescription: x\n{self.relations}"
        )


@dataclass
class PrivateApt:
    """`run("install", "x")` simulates with the repositories and packages that were given."""

    root: Path
    sources: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        made = "etc/apt/preferences.d etc/apt/apt.conf.d var/lib/apt/lists/partial"
        made += " var/cache/apt/archives/partial var/lib/dpkg var/log/apt"
        for folder in made.split():
            (self.root / folder).mkdir(parents=True)
        self.installed()

    def repository(self, label: str, *packages: Package, suite: str | None = None) -> Path:
        """Add a flat repository; `suite` is for those that have one, as a distribution's."""
        folder = self.root / f"repository{len(self.sources)}"
        folder.mkdir()
        stanzas = [
            f"{package.stanza()}Filename: ./{package.name}_{package.version}_amd64.deb\n"
            f"Size: 10\nSHA256: {hashlib.sha256(package.stanza().encode()).hexdigest()}\n"
            for package in packages
        ]
        index = "\n".join(stanzas).encode()
        (folder / "Packages").write_bytes(index)
        (folder / "Release").write_text(
            f"Origin: {label.split()[0]}\nLabel: {label}\n"
            + (f"Suite: {suite}\nVersion: 12\n" if suite else "")
            + "Date: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n"
            f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
        )
        self.sources.append(f"deb [trusted=yes] file:{folder} /")
        (self.root / "etc/apt/sources.list").write_text("\n".join(self.sources) + "\n")
        return folder

    def installed(self, *packages: Package, held: tuple[str, ...] = ()) -> None:
        """Replace dpkg's status."""
        stanzas = []
        for each in packages:
            want = "hold" if each.name in held else "install"
            status = f"Status: {want} ok installed\nVersion:"
            stanzas.append(each.stanza().replace("Version:", status))
        (self.root / "var/lib/dpkg/status").write_text("\n".join(stanzas))

    def preferences(self, text: str) -> None:
        """Write our pins under the name they have on hosts: apt goes by the order of names."""
        (self.root / "etc/apt/preferences.d" / Path(PREFERENCES).name).write_text(text)

    def run(self, *words: str, program: str = "apt-get") -> list[str]:
        """The output of `apt-get WORDS`, errors included."""
        assert APT
        options = (f"Dir={self.root}", f"Dir::State::status={self.root}/var/lib/dpkg/status")
        options += ("APT::Architecture=amd64", "APT::Sandbox::User=root")
        options += ("Dir::Bin::Methods=/usr/lib/apt/methods",)
        command = [program, *(word for each in options for word in ("-o", each)), *words]
        environment = {**os.environ, "LC_ALL": "C", "APT_CONFIG": "/dev/null"}
        done = subprocess.run(
            command, text=True, stdout=-1, stderr=-2, timeout=60, env=environment, check=False
        )
        return done.stdout.splitlines()

    def simulate(self, *packages: str) -> list[str]:
        self.run("update")
        options = ("-s", "--allow-downgrades", "--allow-change-held-packages", "-y")
        return self.run(*options, "--no-install-recommends", "install", *packages)
