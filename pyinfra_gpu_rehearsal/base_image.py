"""The base image: one Debian or Ubuntu tree all throwaway hosts share, made once and cached.

It is made from the same archives as this machine, which its own apt knows, so that no mirror's name
is ever written into this project and a private mirror or a proxy keeps working. Beside the tree
lies a small package repository with what a deploy installs on a host and all its dependencies,
because the hosts reach no network but their own.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pyinfra_gpu.on_host.probe.apt import listed
from pyinfra_gpu_rehearsal.apt_repository import NAME, repack, write_repository
from pyinfra_gpu_rehearsal.commands import LabError, Say, cached, remove_tree, run

# What hosts can be, as NVIDIA calls it -> the distribution and its code name. The archives of all
# releases of a distribution are in one place: the machine's own sources lead to each of them.
RELEASES = {"debian12": ("debian", "bookworm"), "debian13": ("debian", "trixie")}
# Suites of the distribution's own archive; "-proposed" and "-backports" are a choice, not a base.
SUITE_ENDINGS = ("", "-updates", "-security", "/updates")
# Options that say how to reach an archive; everything else is apt's own default.
ACQUIRE = re.compile(
    r'^Acquire::(http|https|ftp|Retries|ForceIPv4|ForceIPv6|Check-Valid-Until|Check-Date)\b.*[^"]";$'
)

# What a freshly installed cloud or server machine has.
PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,openssh-server,sudo,ca-certificates,python3-minimal,iproute2,"
    "procps,netbase,libpam-systemd,kmod,less,util-linux,curl,busybox"
)
# What a deploy may install on a host, offline and without what it recommends: in the repository,
# not in the image.
INSTALLABLE = ("python3-venv", "git", "g++", "gcc", "make", "python3-dev", "ccache", "dkms")

# Units that need a real machine (devices, an uplink, a console) or would wake up by the clock.
MASKED = (
    "systemd-networkd-wait-online.service getty@tty1.service console-getty.service"
    " systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer systemd-udevd.service"
    " systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket"
    " systemd-modules-load.service sys-kernel-debug.mount sys-kernel-tracing.mount"
    " sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount"
)

# Should mmdebstrap be killed, the file systems it mounts into the tree go with its namespaces, and
# removing the tree cannot reach into them.
ALONE = (
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
    "--mount-proc",
)  # fmt: skip

ON_HOST = Path(__file__).parent / "on_host"
FINISH = ON_HOST / "finish_image.sh"
PYTHON = (ON_HOST / "sitecustomize.py", ON_HOST / "rehearsal_bytecode.py")
"""What FINISH puts among Python's own modules."""

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


def os_release(path: Path) -> dict[str, str]:
    """Return the keys and values of a file such as /etc/os-release."""
    pairs = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    return {key: " ".join(shlex.split(value)) for key, _, value in pairs}


class Archives(NamedTuple):
    """The archives of a distribution: lines of a sources.list, and options of an apt.conf."""

    codename: str
    lines: tuple[str, ...]
    options: tuple[str, ...]


def own_lines(sources: Iterable[Mapping[str, Any]], codename: str) -> list[str]:
    """Return what comes from the distribution's own archive, as lines of a sources.list.

    Third-party archives often use the same suite names, but have their own key.
    """
    allowed = {codename + ending for ending in SUITE_ENDINGS}
    found = []
    for source in sources:
        key = source["signed_by"] or ""
        is_own = not key.startswith("/") or re.search(r"(debian|ubuntu)-archive", key)
        # A key that stands in the file itself: the machine's archive keyring has it, too.
        option = f" [signed-by={key}]" if key.startswith("/") else ""
        if is_own and "main" in source["components"]:
            suites = [suite for suite in source["suites"] if suite.rstrip("/") in allowed]
            rest = " ".join(source["components"])
            found += [f"deb{option} {source['uri']} {suite} {rest}" for suite in suites]
    return found


def archives_of(release: str = "", root: Path = Path("/")) -> Archives:
    """Return the archives that the machine below ROOT takes its packages from.

    + release: a key of RELEASES whose packages are wanted; "" = the machine's own

    Raises LabError where the machine is not Debian or Ubuntu or names no archive of its own, or
    where the release is of another distribution.
    """
    known = os_release(root / "etc/os-release")
    distribution, codename = known.get("ID", ""), known.get("VERSION_CODENAME", "")
    if distribution not in ("debian", "ubuntu") or not codename:
        name = known.get("PRETTY_NAME", "unknown")
        raise LabError(f"hosts are made from Debian or Ubuntu packages, and this machine is {name}")
    apt, sources = root / "etc/apt", list[Mapping[str, Any]]()
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix in (".list", ".sources") and path.is_file():
            lines = path.read_text(errors="replace").splitlines()
            sources += listed(str(path), lines)
    lines = own_lines(sources, codename)
    if not lines:
        raise LabError(
            f"no archive of {distribution} {codename} with component main is configured"
            " in /etc/apt/sources.list or /etc/apt/sources.list.d"
        )
    dump = run(["apt-config", "dump"], purpose="reading the apt configuration").stdout
    options = tuple(line for line in dump.splitlines() if ACQUIRE.match(line))
    if not release:
        return Archives(codename, tuple(lines), options)
    wanted, other = RELEASES[release]
    if wanted != distribution:
        raise LabError(
            f"hosts of {release} need a machine with {wanted}, whose archives it is configured"
            f" with, and this one has {distribution}"
        )
    moved = tuple(re.sub(rf" {codename}\b", f" {other}", line) for line in lines)
    return Archives(other, moved, options)


class BaseImage(NamedTuple):
    """A base image that is ready.

    + digest: what it was made from, in short; python: the version of its python3, as in "3.11"
    + root: the tree; repository: the folder of packages that its hosts can install
    """

    digest: str
    python: str
    root: Path
    repository: Path


def ensure_base_image(archives: Archives, say: Say) -> BaseImage:
    """Return the base image for ARCHIVES, building it first where the cache has none.

    Raises LabError where it cannot be built.
    """
    sources = (path.read_text() for path in (Path(__file__), FINISH, *PYTHON))
    key = [repr(archives), platform.machine(), *sources]
    doing = "building the base image, which takes half a minute"
    name = f"base-{archives.codename}"
    folder = cached(name, key, lambda folder: _build(archives, folder), say, doing)
    python = (folder / "root/usr/bin/python3").readlink().name.removeprefix("python")
    return BaseImage(folder.name, python, folder / "root", folder / "debian")


def _build(archives: Archives, folder: Path) -> None:
    words = shlex.join((MASKED, *INSTALLABLE))
    command: list[str | Path] = [
        *ALONE,
        "mmdebstrap",
        "--mode=root",
        "--quiet",
        "--variant=apt",
        f"--include={PACKAGES}",
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={option}" for option in archives.options),
        *(f"--dpkgopt={option}" for option in DPKG_OPTIONS),
        f'--customize-hook=sh {shlex.quote(str(FINISH))} "$1" {words}',
        archives.codename,
        folder / "root",
        "-",
    ]
    run(
        command,
        purpose="building the base image",
        stdin="\n".join(archives.lines) + "\n",
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        timeout=1800,
    )
    installable, pool = folder / "root/installable", folder / "pool"
    pool.mkdir()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        packages = list(threads.map(lambda p: repack(p, pool), sorted(installable.glob("*.deb"))))
    write_repository(folder / "debian", packages, NAME, NAME)
    remove_tree(installable)
