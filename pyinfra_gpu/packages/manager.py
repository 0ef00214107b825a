"""What the stages need of a package manager; one class in a folder of its own keeps each family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pyinfra_gpu.packages.model import Files, PackageChange, Simulation, Source, Transaction


class PackageManager(Protocol):
    """A package manager: makes command lines for a host, and reads what the host answers.

    It never talks to a host itself. A command line is POSIX shell with every value quoted; unless
    something else is said it has to run as root, and ends with 0 where it did what it is for.
    """

    @property
    def name(self) -> str:
        """What people call it; sentences for them begin with it."""

    @property
    def files(self) -> Files:
        """Where the files of ours are that it reads."""

    @property
    def mark(self) -> str:
        """What stands in the command line of a transaction of ours, and so in its own log."""

    @property
    def collected(self) -> str:
        """The file, below `on_host/packages`, of what `collect` asks; see `collect/item.sh`."""

    # A transaction, in the order of its steps.

    def simulate(self, transaction: Transaction) -> str:
        """Return the command that says what a transaction would do, and changes nothing."""

    def simulated(self, lines: Sequence[str]) -> Simulation | None:
        """Read what `simulate` printed on standard output; None where it is cut off."""

    def fetch(self, transaction: Transaction) -> str:
        """Return the command that fetches all files of a transaction and installs none."""

    def run(self, transaction: Transaction, simulation: Simulation) -> str:
        """Return the command that runs a transaction, and stops it where it is another one.

        + simulation: what was judged; before anything else changes, the command has to fail. What
          of it is on hold and stays is on hold again when the command ends, however it ends
        """

    def update(self, wait_s: int) -> str:
        """Return the command that fetches the lists of all sources anew.

        + wait_s: seconds to wait where somebody else does the same
        """

    def update_ours(self, wait_s: int) -> str:
        """Return the command that fetches the list of the source in `files.sources` alone.

        It fails where that source is down, and no other source can make it fail.

        + wait_s: see `update`
        """

    # Packages as a transaction names them, and their versions.

    def exact(self, name: str, version: str) -> str:
        """Return how a transaction asks for this version of a package."""

    def build_of(self, name: str, upstream: str) -> str:
        """Return how a transaction asks for any build of an upstream version, e.g. 580.95.05."""

    def without(self, name: str) -> str:
        """Return how a transaction asks for the removal of a package."""

    def compare(self, left: str, right: str) -> int:
        """Return -1, 0 or 1: how it orders two versions."""

    # Packages as they are on a host.

    def install(self, names: Sequence[str], wait_s: int) -> Iterator[Any]:
        """Yield pyinfra's own commands that install packages of the distribution.

        + names: packages that are not installed
        + wait_s: seconds to wait where somebody else takes the lock meanwhile
        """

    def on_offer(self, names: Sequence[str]) -> str:
        """Return the command that prints every version of packages that is on offer."""

    def on_offer_in(self, lines: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Read what `on_offer` printed: name -> versions."""

    def versions(self, names: Sequence[str]) -> str:
        """Return the command that prints the versions of packages."""

    def versions_in(self, lines: Sequence[str]) -> Mapping[str, str]:
        """Read what `versions` printed: name -> version, without those that are not installed."""

    def hold(self, names: Sequence[str]) -> str:
        """Return the command that puts packages on hold."""

    def unhold(self, names: Sequence[str]) -> str:
        """Return the command that takes packages off hold."""

    def owners(self, paths: Sequence[str]) -> str:
        """Return the command that prints to which packages paths belong.

        It fails where one of them belongs to none.
        """

    def missing_files(self, folder: str) -> str:
        """Return the command that prints, as `owners` does, what packages lost below `folder`."""

    def owners_in(self, lines: Sequence[str]) -> list[str]:
        """Read what `owners` or `missing_files` printed: names, as often as they stand there."""

    def finish(self) -> str:
        """Return the command that finishes what an interrupted installation left."""

    # NVIDIA's repository.

    def keyring(self, url: str, sha256: str) -> str:
        """Return the command that fetches the repository's keyring and prints it as base64.

        + url: the repository, without a slash at its end
        + sha256: digest of the package that holds it; nothing of another one is opened
        """

    def keyring_url(self, url: str) -> str:
        """Return where in a repository that package is."""

    def sources_text(self, url: str) -> str:
        """Return what `files.sources` holds: the repository, signed by our keyring alone."""

    def pins_text(
        self,
        branch: int,
        version: str | None,
        toolkit: tuple[str, str] | None,
        absent_pin: str | None = None,
    ) -> str:
        """Return what `files.pins` holds: the driver from NVIDIA alone, of one branch or version.

        + branch, version: the declared ones; None as version = any of the branch
        + toolkit: package and exact release of the toolkit, where one is declared
        + absent_pin: the pin package that the repository does not have, so that these stand alone
        """

    def archive_pins_text(
        self,
        branch: int,
        version: str | None,
        toolkit: tuple[str, str] | None,
        apart: Sequence[str],
    ) -> str:
        """Return the same where the driver is the distribution's own, and NVIDIA's none.

        + apart: packages of the distribution whose versions are their own
        """

    def archive_text(self, sources: Sequence[Source]) -> str:
        """Return what `files.archive` holds: these components of the distribution's archive."""

    def unattended_text(self, *, with_kernels: bool = False) -> str:
        """Return what `files.unattended` holds.

        + with_kernels: whether modules that the distribution built come with its kernels
        """

    def set_aside(self, file: str, url: str) -> str:
        """Return the command that takes a list out of use that names nothing but `url`.

        It fails, with a sentence, where the list names another repository too.
        """

    def sources_in(self, file: str, lines: Sequence[str]) -> Iterator[Source]:
        """Read one of the lists of sources: those that are enabled."""

    def changes_in(self, rows: Sequence[str]) -> Iterator[PackageChange]:
        """Read the rows that the probe makes of its log; a damaged one is passed over."""

    # What a failed command printed, and words for people.

    def errors_in(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Read what a failed command printed: the lines that say why, without what precedes them.

        All lines where none is known to say it. What they mean is for the diagnosis; where that
        does not know them, the last one has to do.
        """

    def says_script_failed(self, lines: Sequence[str]) -> bool:
        """Tell whether `finish` says that the program failed by which a package sets itself up.

        Then all its files are there, and to install it again would fail the same way.
        """

    def install_by_hand(self, names: Sequence[str]) -> str:
        """Return the command line by which a person installs packages."""

    def remove_by_hand(self, names: Sequence[str], *, entirely: bool = False) -> str:
        """Return the command line by which a person removes packages.

        + entirely: their configuration too
        """

    def unhold_by_hand(self, name: str) -> str:
        """Return the command line by which a person takes a package off hold."""

    def owner_by_hand(self, path: str) -> str:
        """Return the command line that tells a person whose a path is."""

    def offers_by_hand(self, name: str) -> str:
        """Return the command line that tells a person which versions are on offer."""

    def finish_by_hand(self) -> str:
        """Return the command line by which a person finishes an interrupted installation."""
