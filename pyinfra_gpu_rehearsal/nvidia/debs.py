"""Debian packages made on the spot: what a package says of itself, holds and runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyinfra_gpu_rehearsal.apt_repository import stanza
from pyinfra_gpu_rehearsal.commands import run

ON_HOST = Path(__file__).parent / "on_host"
"""Programs and files for the hosts, and sources of what is compiled for them."""

# The time in every package, so that one made again is the same, byte for byte.
SAME_TIME = "1767225600"
MAINTAINER = "pyinfra-gpu rehearsal <rehearsal@localhost>"


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to TARGET."""

    target: str


Content = str | bytes | Path | Link
"""What a file is: its text or bytes, a file or folder to copy, or a link."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One package.

    + relations: control fields such as Depends
    + files: path without the leading slash -> its content
    + programs: which of the files may be executed
    + scripts: name ("postinst") -> shell text, without its first line
    + compress: for the one that is big; the others are made and read faster without
    """

    name: str
    version: str
    architecture: str = "amd64"
    description: str = ""
    relations: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Content] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    triggers: str = ""
    compress: bool = False

    @property
    def filename(self) -> str:
        """The name of its file."""
        return f"{self.name}_{self.version}_{self.architecture}.deb"

    def control(self) -> str:
        """Return the text of its control file."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": MAINTAINER,
            "Section": "misc",
            "Priority": "optional",
            **self.relations,
            "Description": f"rehearsal: {self.description or self.name}",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def changed(self, **relations: str) -> Package:
        """Return the package with other relations: a value replaces, "" removes."""
        return replace(self, relations={**self.relations, **relations})


def script(name: str, **values: str) -> str:
    """Return the text of the file NAME of on_host, each @KEY@ in it replaced by its value."""
    text = (ON_HOST / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key.upper()}@", value)
    return text


def _lay_out(package: Package, tree: Path) -> None:
    for name, content in package.files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            path.symlink_to(content.target)
        elif isinstance(content, Path):
            copy = shutil.copytree if content.is_dir() else shutil.copyfile
            copy(content, path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    for name in package.programs:
        (tree / name).chmod(0o755)
    meta = tree / "DEBIAN"
    meta.mkdir()
    (meta / "control").write_text(package.control())
    for name, text in package.scripts.items():
        (meta / name).write_text(f"#!/bin/sh\nset -e\n{text}")
        (meta / name).chmod(0o755)
    if package.triggers:
        (meta / "triggers").write_text(f"{package.triggers}\n")
    configuration = [f"/{name}\n" for name in package.files if name.startswith("etc/")]
    if configuration:
        (meta / "conffiles").write_text("".join(configuration))


def build(package: Package, folder: Path) -> Path:
    """Make the file of PACKAGE in FOLDER, and beside it (.stanza) its entry in an index."""
    with tempfile.TemporaryDirectory(prefix="pgpu-deb-", dir=folder) as name:
        tree = Path(name, "tree")
        tree.mkdir(mode=0o755)
        _lay_out(package, tree)
        return _pack(tree, folder / package.filename, compress=package.compress)


def repack(original: Path, folder: Path, **fields: str) -> Path:
    """Make in FOLDER, as `build` does, the package ORIGINAL with other control FIELDS.

    A value replaces, "" removes. The file's name has no epoch, as in every pool.
    """
    with tempfile.TemporaryDirectory(prefix="pgpu-deb-", dir=folder) as name:
        tree = Path(name, "tree")
        run(["dpkg-deb", "--raw-extract", original, tree], purpose=f"unpacking {original.name}")
        control = tree / "DEBIAN/control"
        rows = control.read_text().splitlines()
        kept = [row for row in rows if row.split(":", 1)[0] not in fields]
        more = [f"{key}: {value}" for key, value in fields.items() if value]
        control.write_text("\n".join([kept[0], *more, *kept[1:]]) + "\n")
        package, version, architecture = original.stem.replace("%3a", ":").split("_")
        version = fields.get("Version", version).split(":")[-1]
        return _pack(tree, folder / f"{package}_{version}_{architecture}.deb")


def _pack(tree: Path, target: Path, *, compress: bool = False) -> Path:
    how = ["-Zzstd", "-z1"] if compress else ["-Znone"]
    run(
        ["dpkg-deb", "--root-owner-group", *how, "--build", tree, target],
        purpose=f"making the package {target.name}",
        env={**os.environ, "SOURCE_DATE_EPOCH": SAME_TIME},
        timeout=600,
    )
    entry = stanza((tree / "DEBIAN/control").read_text(), target.name, target.read_bytes())
    target.with_suffix(".stanza").write_text(entry)
    return target
