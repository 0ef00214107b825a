"""Apt and dpkg: command lines for a host, and what it answers.

A command line is POSIX shell with every value quoted. Unless something else is said it has to run
as root, and ends with 0 where it did what it is for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from pyinfra_gpu.on_host import program, text
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.model import MARK
from pyinfra_gpu.packages.names import plain
from pyinfra_gpu.packages.simulation import Simulation

_FETCHED_TO = "/var/lib"  # where there is space: packages that are unpacked again
_MODULES = "/var/lib/dkms"
_KEYRING_IN_PACKAGE = "usr/share/keyrings/cuda-archive-keyring.gpg"
_APT_GET = (
    # needrestart would restart services of the user's, without a question without a terminal.
    *("env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"),
    *("apt-get", "-y", "-q", "--no-install-recommends", "-o", "APT::Get::AutomaticRemove=false"),
    # A configuration file that somebody changed stays as it is, without a question.
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
# A name that is not on offer fails; as a pattern, "python3.9" could match others.
_EXACTLY = ("-o", "APT::Cmd::Pattern-Only=true")
_OURS_ONLY = (
    *("-o", f"Dir::Etc::sourcelist={files.SOURCES}", "-o", "Dir::Etc::sourceparts=-"),
    # The lists of all other sources stay; and without this, apt ends with 0 where a server is down.
    *("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"),
)


def transaction(packages: Sequence[str], *, reinstall: bool, wait_s: int) -> tuple[str, ...]:
    """Return the words of apt-get that install packages, without a question.

    + packages: as apt-get takes them: "NAME", "NAME=VERSION", "NAME-" to remove it
    + reinstall: also where a package is installed already
    + wait_s: seconds to wait where somebody else takes the lock meanwhile

    Simulation, download and real run must not differ in more than an option.
    """
    return (
        *(*_APT_GET, "-o", f"{MARK}=1", "-o", _wait(wait_s)),
        *("--allow-downgrades", "--allow-change-held-packages", *_EXACTLY),
        # What is installed again to bring back lost files brings its configuration files, too.
        *(("-o", "Dpkg::Options::=--force-confmiss") if reinstall else ()),
        *("install", *(("--reinstall",) if reinstall else ()), *packages),
    )


def run(words: Sequence[str], judged: Simulation) -> str:
    """Return the command that runs a transaction, and stops it where it is another one.

    + judged: what was judged; before anything else changes, the command fails. What of it is on
      hold and stays is on hold again when the command ends
    """
    allowed = "".join(f"{plain(each.name)} {each.new or '-'}\n" for each in judged.changes)
    # What was removed would go on hold, too, and could not come back.
    held = " ".join(each.name for each in judged.changes if each.new and each.held)
    return program(
        "packages/apt/transaction.sh", text("packages/apt/guard.sh"), allowed, held, *words
    )


def _wait(seconds: int) -> str:
    return f"DPkg::Lock::Timeout={max(seconds, 1)}"


def update(wait_s: int, *, ours: bool = False) -> str:
    """Return the command that fetches the lists of all sources anew.

    + wait_s: seconds to wait where somebody else does the same
    + ours: only the list of NVIDIA's repository; no other source can make it fail then
    """
    words = ("apt-get", "update", "-q", *(_OURS_ONLY if ours else ()))
    return program("packages/apt/update.sh", str(wait_s), *words)


def unlocked(wait_s: int) -> str:
    """Return the command that waits until nobody else holds the lock; it fails after a while."""
    return shlex.join(("env", "LC_ALL=C", "apt-get", "check", "-q", "-o", _wait(wait_s)))


def on_offer(names: Sequence[str]) -> str:
    """Return the command that prints every version of packages that is on offer.

    `apt-cache show` would also show what was removed and left a file behind.
    """
    return shlex.join(("apt-cache", "madison", *names))


def on_offer_in(lines: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Read its lines "libcuda1 | 535.261.03-1 | http://... Packages": name -> versions."""
    rows = [[word.strip() for word in line.split(" | ")] for line in lines]
    whole = [row for row in rows if len(row) == 3]
    return {name: tuple(v for each, v, _ in whole if each == name) for name, _, _ in whole}


def finish() -> str:
    """Return the command that finishes what an interrupted installation left."""
    return program("packages/apt/finish.sh", _FETCHED_TO, _MODULES)


def keyring_url(url: str) -> str:
    """Return where in NVIDIA's repository the package is that holds its keyring."""
    return f"{url}/cuda-keyring_1.1-1_all.deb"


def keyring(url: str, sha256: str) -> str:
    """Return the command that fetches that package and prints the keyring in it as base64.

    + url: the repository, without a slash at its end
    + sha256: digest of the package; nothing of another one is opened

    The package is never installed: its own list would point elsewhere.
    """
    words = (keyring_url(url), f"SHA256:{sha256}", _KEYRING_IN_PACKAGE)
    return program("packages/apt/keyring.sh", *words)


_GUARD, _ONLY_DEPENDS = "E: pyinfra-gpu: ", "dependency problems - leaving unconfigured"
_BEGINS_A_PACKAGE = re.compile(r"(?m)^(?=(?:Preparing to unpack|Unpacking|Setting up|Removing) )")
_FAILED = re.compile(r"(?ms).*?^dpkg: error processing [^\n]*(?:\n [^\n]*)*")
_TELLS = re.compile(r"(?:E|W|Error|Warning): |dpkg(?:-deb)?: error")
# What apt adds where the error itself stands in another line, or where there is none.
_SUMS_UP = re.compile(
    r"\w+: (?:Sub-process /usr/bin/dpkg |Some (?:index )?files failed to download|Download Failed"
    r"|Unable to fetch some archives|Failure while executing|Download is performed unsandboxed)"
)
_SCRIPT_FAILED = re.compile(r" installed \S+ package post-installation script subprocess ")


def errors_in(lines: Sequence[str]) -> tuple[str, ...]:
    """Read what a failed command printed: the lines that say why; all where none is known to.

    Errors come behind warnings. Of a package that dpkg could not install: all that was printed
    about the first that does not only depend on another. What the lines mean is for the diagnosis.
    """
    lines = [line.rstrip() for line in lines if line.strip()]
    parts = _BEGINS_A_PACKAGE.split("\n".join(lines))
    failed = [each for part in parts for each in _FAILED.findall(part)]
    if guard := [line for line in lines if line.startswith(_GUARD)]:
        return tuple(guard)
    if failed:
        own = [each for each in failed if _ONLY_DEPENDS not in each]
        return tuple((own or failed)[0].strip("\n").split("\n"))
    found = [line for line in lines if _TELLS.match(line) and not _SUMS_UP.match(line)]
    return tuple(sorted(found, key=lambda line: not line.startswith("W")) or lines)


def says_script_failed(lines: Sequence[str]) -> bool:
    """Tell whether `finish` says that the program failed by which a package sets itself up.

    Then all its files are there, and to install it again would fail the same way.
    """
    return any(map(_SCRIPT_FAILED.match, lines))
