"""Apt and dpkg behind the protocol: command lines for a host, and what its answers mean."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyinfra.api import StringCommand
from pyinfra.operations import apt as stock_apt

from pyinfra_gpu.on_host import program, text
from pyinfra_gpu.packages.apt import errors, files, history, simulation, sources, versions
from pyinfra_gpu.packages.model import (
    Files,
    PackageChange,
    Simulation,
    Source,
    Transaction,
)
from pyinfra_gpu.packages.names import plain

_PART = "== pyinfra-gpu =="
_STATE = "/var/lib"  # /tmp and /run may forbid to run programs; dpkg itself runs scripts below it
_MODULES = "/var/lib/dkms"
_HELD = "packages/apt/held.sh"
_KEYRING_PACKAGE = "cuda-keyring_1.1-1_all.deb"
_KEYRING_IN_PACKAGE = "usr/share/keyrings/cuda-archive-keyring.gpg"
# needrestart would restart services of the user's, without a question where there is no terminal.
_ENVIRONMENT = ("NEEDRESTART_SUSPEND=1",)
# What is installed again to bring back lost files brings its configuration files, too.
_LOST = ("-o", "Dpkg::Options::=--force-confmiss")
_OURS_ONLY = (
    *("-o", f"Dir::Etc::sourcelist={files.SOURCES}", "-o", "Dir::Etc::sourceparts=-"),
    # The lists of all other sources stay; and without this, apt ends with 0 where a server is down.
    *("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"),
)


class Apt:
    """Apt, as Debian and Ubuntu have it; see `pyinfra_gpu.packages.manager.PackageManager`."""

    name: str = "apt"
    files: Files = files.FILES
    # An option without effect, which apt's log keeps with the rest of the command line.
    mark: str = "pyinfra-gpu::transaction"
    collected: str = "apt/collect.sh"

    def simulate(self, transaction: Transaction) -> str:
        """See the protocol: one round trip for the changes, the holds and what is to be fetched."""
        return program("packages/apt/simulate.sh", _PART, *self._words(transaction))

    def simulated(self, lines: Sequence[str]) -> Simulation | None:
        """See the protocol."""
        return simulation.read(lines, _PART)

    def fetch(self, transaction: Transaction) -> str:
        """See the protocol."""
        return shlex.join((*self._words(transaction), "--download-only"))

    def run(self, transaction: Transaction, simulation: Simulation) -> str:
        """See the protocol: apt-get, with `guard.sh` in place while it lasts."""
        allowed = "".join(
            f"{plain(change.name)} {change.new or '-'}\n" for change in simulation.changes
        )
        guard, held = text("packages/apt/guard.sh"), " ".join(simulation.held_and_changed)
        words = (guard, allowed, held, *self._words(transaction))
        return program("packages/apt/transaction.sh", _STATE, *words, uses=(_HELD,))

    def _words(self, transaction: Transaction) -> tuple[str, ...]:
        """Return the words of apt-get; simulation and real run must not differ in more."""
        return (
            *("env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", *_ENVIRONMENT),
            *("apt-get", "-o", f"{self.mark}=1", "-y", "-q"),
            *("--no-install-recommends", "--allow-downgrades"),
            *("--allow-change-held-packages", "-o", _wait(transaction.wait_s)),
            # A configuration file that somebody changed stays as it is, without a question.
            *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
            *(_LOST if transaction.reinstall else ()),
            *("-o", "APT::Get::AutomaticRemove=false", "install"),
            *(("--reinstall",) if transaction.reinstall else ()),
            *transaction.packages,
        )

    def update(self, wait_s: int) -> str:
        """See the protocol."""
        return program("packages/apt/update.sh", str(wait_s), "apt-get", "update", "-q")

    def update_ours(self, wait_s: int) -> str:
        """See the protocol."""
        words = ("apt-get", "update", "-q", *_OURS_ONLY)
        return program("packages/apt/update.sh", str(wait_s), *words)

    def exact(self, name: str, version: str) -> str:
        """See the protocol."""
        return f"{name}={version}"

    def build_of(self, name: str, upstream: str) -> str:
        """See the protocol."""
        return f"{name}={upstream}-*"

    def without(self, name: str) -> str:
        """See the protocol: a conflict alone does not move a package on hold."""
        return f"{name}-"

    def compare(self, left: str, right: str) -> int:
        """See the protocol."""
        return versions.compare(left, right)

    def install(self, names: Sequence[str], wait_s: int) -> Iterator[Any]:
        """See the protocol."""
        yield StringCommand(self.update(wait_s))
        for command in stock_apt.packages._inner(
            packages=list(names),
            no_recommends=True,
            # Somebody may take the lock between our look and this command; see apt-get(8).
            # A name that is not on offer fails; as a pattern, "python3.9" could match others.
            extra_install_args=f"-o {_wait(wait_s)} -o APT::Cmd::Pattern-Only=true",
        ):
            yield StringCommand("env", *_ENVIRONMENT, command)

    def on_offer(self, names: Sequence[str]) -> str:
        """See the protocol; `apt-cache show` also shows what was removed and left a file behind."""
        return shlex.join(("apt-cache", "madison", *names))

    def on_offer_in(self, lines: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """See the protocol; a line is "libcuda1 | 535.261.03-1 | http://... Packages"."""
        found: dict[str, dict[str, None]] = {}
        for line in lines:
            words = [word.strip() for word in line.split(" | ")]
            if len(words) == 3:
                found.setdefault(words[0], {})[words[1]] = None
        return {name: tuple(each) for name, each in found.items()}

    def versions(self, names: Sequence[str]) -> str:
        """See the protocol."""
        rows = r"${Package}=${Version}\n${binary:Package}=${Version}\n"
        return f"{shlex.join(('dpkg-query', '-W', '-f', rows, *names))} 2>/dev/null"

    def versions_in(self, lines: Sequence[str]) -> Mapping[str, str]:
        """See the protocol: each by its name alone, and with its architecture."""
        found = (line.partition("=") for line in lines)
        return {name: version for name, _, version in found if version}

    def hold(self, names: Sequence[str]) -> str:
        """See the protocol."""
        return shlex.join(("apt-mark", "hold", *names))

    def unhold(self, names: Sequence[str]) -> str:
        """See the protocol."""
        return shlex.join(("apt-mark", "unhold", *names))

    def owners(self, paths: Sequence[str]) -> str:
        """See the protocol."""
        return f"{shlex.join(('dpkg-query', '-S', *paths))} 2>/dev/null"

    def missing_files(self, folder: str) -> str:
        """See the protocol."""
        return program("packages/apt/missing_files.sh", folder)

    def owners_in(self, lines: Sequence[str]) -> list[str]:
        """See the protocol; a line is "libcuda1:amd64: /usr/lib/.../libcuda.so".

        A line "diversion by ..." names none.
        """
        found = []
        for line in lines:
            names, separator, path = line.partition(": ")
            if separator and path.startswith("/") and not names.startswith("diversion "):
                found += [name.strip() for name in names.split(",")]
        return found

    def finish(self) -> str:
        """See the protocol; --force-confold keeps the user's configuration files: dpkg(1)."""
        return program("packages/apt/finish.sh", _STATE, _MODULES, uses=(_HELD,))

    def keyring(self, url: str, sha256: str) -> str:
        """See the protocol: the package is never installed, its own list would point elsewhere."""
        digest = f"SHA256:{sha256}"
        return program(
            "packages/apt/keyring.sh", self.keyring_url(url), digest, _KEYRING_IN_PACKAGE
        )

    def keyring_url(self, url: str) -> str:
        """See the protocol."""
        return f"{url}/{_KEYRING_PACKAGE}"

    def sources_text(self, url: str) -> str:
        """See the protocol."""
        return files.sources(url)

    def pins_text(
        self,
        branch: int,
        version: str | None,
        toolkit: tuple[str, str] | None,
        absent_pin: str | None = None,
    ) -> str:
        """See the protocol."""
        return files.preferences(branch, version, toolkit, absent_pin)

    def archive_pins_text(
        self,
        branch: int,
        version: str | None,
        toolkit: tuple[str, str] | None,
        apart: Sequence[str],
    ) -> str:
        """See the protocol."""
        return files.archive_preferences(branch, version, toolkit, apart)

    def archive_text(self, sources: Sequence[Source]) -> str:
        """See the protocol."""
        return files.archive(sources)

    def unattended_text(self, *, with_kernels: bool = False) -> str:
        """See the protocol."""
        return files.unattended(with_kernels=with_kernels)

    def set_aside(self, file: str, url: str) -> str:
        """See the protocol: apt passes over files that end in ".disabled"."""
        return program("packages/apt/set_aside.sh", files.SOURCES_FOLDER, file, url)

    def sources_in(self, file: str, lines: Sequence[str]) -> Iterator[Source]:
        """See the protocol."""
        return sources.read(file, lines)

    def changes_in(self, rows: Sequence[str]) -> Iterator[PackageChange]:
        """See the protocol."""
        return history.read(rows)

    def errors_in(self, lines: Sequence[str]) -> tuple[str, ...]:
        """See the protocol."""
        return errors.read(lines)

    def says_script_failed(self, lines: Sequence[str]) -> bool:
        """See the protocol."""
        return errors.says_script_failed(lines)

    def install_by_hand(self, names: Sequence[str]) -> str:
        """See the protocol."""
        return f"sudo apt-get install {' '.join(names)}"

    def remove_by_hand(self, names: Sequence[str], *, entirely: bool = False) -> str:
        """See the protocol."""
        return f"sudo apt-get {'purge' if entirely else 'remove'} {' '.join(names)}"

    def unhold_by_hand(self, name: str) -> str:
        """See the protocol."""
        return f"apt-mark unhold {name}"

    def owner_by_hand(self, path: str) -> str:
        """See the protocol."""
        return f"dpkg -S {path}"

    def offers_by_hand(self, name: str) -> str:
        """See the protocol."""
        return f"apt-cache policy {name}"

    def finish_by_hand(self) -> str:
        """See the protocol."""
        return "sudo dpkg --configure -a"


def _wait(seconds: int) -> str:
    return f"DPkg::Lock::Timeout={max(seconds, 1)}"
