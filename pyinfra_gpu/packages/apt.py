"""Apt and dpkg: command lines for a host, and what it answers.

A command line is POSIX shell with every value quoted. Unless something else is said it has to run
as root, and ends with 0 where it did what it is for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile

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
    """Read what `on_offer` printed: name -> versions.

    A line is "libcuda1 | 535.261.03-1 | http://... Packages".
    """
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        words = [word.strip() for word in line.split(" | ")]
        if len(words) == 3:
            found.setdefault(words[0], {})[words[1]] = None
    return {name: tuple(each) for name, each in found.items()}


def finish() -> str:
    """Return the command that finishes what an interrupted installation left."""
    return program("packages/apt/finish.sh", _FETCHED_TO, _MODULES)


def keyring(url: str, sha256: str) -> str:
    """Return the command that fetches NVIDIA's keyring and prints it as base64.

    + url: the repository, without a slash at its end
    + sha256: digest of the package that holds it; nothing of another one is opened

    The package is never installed: its own list would point elsewhere.
    """
    words = (keyring_url(url), f"SHA256:{sha256}", _KEYRING_IN_PACKAGE)
    return program("packages/apt/keyring.sh", *words)


def keyring_url(url: str) -> str:
    """Return where in a repository that package is."""
    return f"{url}/cuda-keyring_1.1-1_all.deb"


def set_aside(file: str, url: str) -> str:
    """Return the command that takes a list out of use that names nothing but `url`.

    It fails, with a sentence, where the list names another repository too. Apt passes over files
    that end in ".disabled".
    """
    return program("packages/apt/set_aside.sh", files.SOURCES_FOLDER, file, url)


_GUARD, _NOT_INSTALLED = "E: pyinfra-gpu: ", "dpkg: error processing "
_ONLY_DEPENDS = "dependency problems - leaving unconfigured"
_TELLS = re.compile(r"(?:E|W|Error|Warning): |dpkg(?:-deb)?: error")
# What apt adds where the error itself stands in another line, or where there is none.
_SUMS_UP = re.compile(
    r"(?:E|W|Error|Warning): (?:Sub-process /usr/bin/dpkg |Some (?:index )?files failed to download"
    r"|Download Failed|Unable to fetch some archives|Failure while executing"
    r"|Download is performed unsandboxed)"
)
_PREFACE = re.compile(r"^.*(?:GPG error|OpenPGP signature verification failed): (?=\S)")
_BEGINS_A_PACKAGE = re.compile(r"(?:Preparing to unpack|Unpacking|Setting up|Removing) ")


def errors_in(lines: Sequence[str]) -> tuple[str, ...]:
    """Read what a failed command printed: the lines that say why; all where none is known to.

    Errors come behind warnings. Of a package that dpkg could not install: all that was printed
    about that one. What the lines mean is for the diagnosis.
    """
    lines = [line.rstrip() for line in lines if line.strip()]
    if guard := [line for line in lines if line.startswith(_GUARD)]:
        return tuple(guard)
    if places := [at for at, line in enumerate(lines) if line.startswith(_NOT_INSTALLED)]:
        # What only depends on the one that failed may stand before it.
        own = [at for at in places if _ONLY_DEPENDS not in "".join(lines[at : at + 2])]
        at = (own or places)[0]
        begins = [each for each in range(at) if _BEGINS_A_PACKAGE.match(lines[each])]
        details = takewhile(lambda line: line.startswith(" "), lines[at + 1 :])
        return (*lines[begins[-1] if begins else 0 : at + 1], *details)
    found = [line for line in lines if _TELLS.match(line) and not _SUMS_UP.match(line)]
    found.sort(key=lambda line: not line.startswith("W"))
    return tuple(_PREFACE.sub("", line) for line in found or lines)
