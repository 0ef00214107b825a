"""The base image: one Debian or Ubuntu tree all throwaway hosts share, made once and cached.

Beside the tree lies a small package repository with what a deploy installs on a host and all
its dependencies, because the hosts reach no network but their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.apt_repository import NAME, SigningKey, write_suite
from pyinfra_gpu_rehearsal.aptconfig import AptConfiguration
from pyinfra_gpu_rehearsal.commands import remove_tree, run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.debs import repack
from pyinfra_gpu_rehearsal.state import cache_folder, locked

Say = Callable[[str], None]
KEY_NAME = "archive-key.gpg"  # at the top of the repository
FORMAT = "not compressed"  # of what packages hold; other words make other repositories

# What a freshly installed cloud or server machine has.
PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,openssh-server,sudo,ca-certificates,python3-minimal,iproute2,"
    "procps,netbase,libpam-systemd,kmod,less,util-linux,curl,busybox"
)
# What a deploy may install on a host, offline: in the repository, not in the image.
INSTALLABLE = ("python3-venv", "git", "g++", "gcc", "python3-dev", "ccache")
# The same, without what they recommend: that of dkms is the headers of the distribution's kernel.
INSTALLABLE_ALONE = ("dkms",)

# Units that need a real machine (devices, an uplink, a console) or would wake up by the clock.
MASKED = (
    "systemd-networkd-wait-online.service",
    "getty@tty1.service",
    "console-getty.service",
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-modules-load.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
)

# Should mmdebstrap be killed, the file systems it mounts into the tree go with its namespaces, and
# removing the tree cannot reach into them.
ALONE = (
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
    "--mount-proc",
)  # fmt: skip

FINISH = Path(__file__).parent / "on_host/finish_image.sh"
# FINISH puts these there.
PYTHON = tuple(FINISH.with_name(name) for name in ("sitecustomize.py", "rehearsal_bytecode.py"))

# Documentation and translations are half of the image and nothing on a host reads them.
DPKG_OPTIONS = (
    "force-unsafe-io",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """A base image that is ready."""

    folder: Path  # holds root/ (the tree), debian/ (the package repository) and base.json
    digest: str
    codename: str
    python: str  # "3.11", the version of the tree's python3

    @property
    def root(self) -> Path:
        """The tree."""
        return self.folder / "root"

    @property
    def repository(self) -> Path:
        """The package repository."""
        return self.folder / "debian"

    @property
    def key(self) -> Path:
        """The key that signed the repository."""
        return self.repository / KEY_NAME


def image_digest(apt: AptConfiguration) -> str:
    """Return the name of the image made from APT: it depends on everything the image does."""
    parts = [
        apt.distribution,
        apt.sources_text(),
        PACKAGES,
        *INSTALLABLE,
        *INSTALLABLE_ALONE,
        *MASKED,
        FINISH.read_text(),
        *(path.read_text() for path in PYTHON),
        *DPKG_OPTIONS,
        FORMAT,
        KEY_NAME,
        platform.machine(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _load(folder: Path) -> BaseImage | None:
    try:
        known = json.loads((folder / "base.json").read_text())
    except (OSError, ValueError):
        return None
    return BaseImage(
        folder=folder, digest=known["digest"], codename=known["codename"], python=known["python"]
    )


def _python_version(root: Path) -> str:
    target = (root / "usr/bin/python3").readlink()
    return target.name.removeprefix("python")


def _bootstrap(apt: AptConfiguration, work: Path) -> None:
    """Make the tree WORK/root with mmdebstrap, as the machine's own apt is configured."""
    lists = (" ".join(MASKED), " ".join(INSTALLABLE_ALONE), *INSTALLABLE)
    hook = f'sh {shlex.quote(str(FINISH))} "$1" {shlex.join(lists)}'
    command: list[str | Path] = [
        *ALONE,
        "mmdebstrap",
        "--mode=root",
        "--quiet",
        "--variant=apt",
        f"--include={PACKAGES}",
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={option}" for option in apt.options),
        *(f"--dpkgopt={option}" for option in DPKG_OPTIONS),
        f"--customize-hook={hook}",
        apt.codename,
        work / "root",
        "-",
    ]
    run(
        command,
        purpose="building the base image",
        stdin=apt.sources_text(),
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        timeout=1800,
    )


def make_repository(packages: Iterable[Path], folder: Path, *, suite: str) -> int:
    """Lay out PACKAGES (.deb files, which are removed) as an apt repository in FOLDER.

    To unpack what xz has compressed takes most of what dpkg takes of a processor, and hosts
    install the same packages again and again: so these are not compressed. It is signed with a
    key that is thrown away at once; what it is checked with is FOLDER/archive-key.gpg. Returns
    the number of packages. Raises LabError.
    """
    architecture = run(["dpkg", "--print-architecture"], purpose="asking dpkg").stdout.strip()
    pool = folder / "pool"
    pool.mkdir(parents=True)
    given = sorted(packages)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        made = list(threads.map(lambda package: repack(package, pool), given))
    listed = [package.with_suffix(".stanza") for package in made]
    entries = [each.read_text().replace("Filename: ", "Filename: pool/") for each in listed]
    for each in (*given, *listed):
        each.unlink()
    fields = {"Origin": NAME, "Label": NAME, "Suite": suite, "Codename": suite}
    fields |= {"Architectures": architecture, "Components": "main"}
    place = folder / "dists" / suite
    write_suite(place, f"main/binary-{architecture}", entries, fields)
    with tempfile.TemporaryDirectory(prefix="pgpu-key-") as name:
        key = SigningKey(Path(name))
        key.ensure(NAME)
        key.sign(place / "Release")
        shutil.copyfile(key.public, folder / KEY_NAME)
    return len(entries)


def _build(apt: AptConfiguration, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    work.chmod(0o755)
    try:
        _bootstrap(apt, work)
        packages = list((work / "root/installable").glob("*.deb"))
        make_repository(packages, work / "debian", suite=apt.codename)
        (work / "root/installable").rmdir()
        known = {
            "digest": image_digest(apt),
            "codename": apt.codename,
            "python": _python_version(work / "root"),
            "packages": len(packages),
        }
        (work / "base.json").write_text(json.dumps(known, indent=1) + "\n")
        work.rename(folder)
    finally:
        remove_tree(work)


def ensure_base_image(apt: AptConfiguration, say: Say) -> BaseImage:
    """Return the base image for APT, building it first where the cache has none.

    Raises LabError where it cannot be built.
    """
    folder = cache_folder() / f"base-{apt.codename}-{image_digest(apt)}"
    with locked(cache_folder() / "base.lock"):
        return _load(folder) or _make(apt, folder, say)


def _make(apt: AptConfiguration, folder: Path, say: Say) -> BaseImage:
    for leftover in folder.parent.glob("base-*.part"):
        remove_tree(leftover)  # of a build that was killed; no other runs under the lock
    say("building the base image (about 30 s, once) ...")
    started = time.monotonic()
    _build(apt, folder)
    image = _load(folder)
    if image is None:
        raise LabError(f"the base image in {folder} cannot be read: remove that folder")
    say(f"the base image is ready after {time.monotonic() - started:.0f} s")
    return image
