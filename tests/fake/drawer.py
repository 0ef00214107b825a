"""A package manager that does not exist, to see that nothing but its own class knows a family.

It keeps packages in a drawer. What it prints is its own: "+ NAME OLD NEW LABEL URI" for a change,
"- NAME OLD" for a removal, "h NAME" for a hold, "! TEXT" for an error; "none" stands for nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyinfra.api.command import StringCommand

from pyinfra_gpu.packages.model import (
    Change,
    Files,
    PackageChange,
    Simulation,
    Source,
    Transaction,
)


def line(*words: str) -> str:
    return shlex.join(("drawer", *words))


FILES = Files(
    sources="/etc/drawer/ours",
    pins="/etc/drawer/pins",
    unattended="/etc/drawer/off",
    archive="/etc/drawer/more",
)


@dataclass(frozen=True)
class Drawer:
    name: str = "drawer"
    mark: str = "--for=pyinfra-gpu"
    collected: str = "drawer/collect.sh"
    files: Files = FILES

    def _line(self, verb: str, transaction: Transaction) -> str:
        again = ("--again",) if transaction.reinstall else ()
        wait = f"--wait={transaction.wait_s}"
        return line(verb, self.mark, wait, *again, *transaction.packages)

    def simulate(self, transaction: Transaction) -> str:
        return self._line("plan", transaction)

    def simulated(self, lines: Sequence[str]) -> Simulation | None:
        if not lines or lines[-1] != "done":
            return None
        changes, fetches, odd = [], {}, []
        rows = [row.split(" ") for row in lines[:-1]]
        for row in rows:
            if row[0] == "+" and len(row) == 6:
                _, name, old, new, label, uri = row
                change = Change(
                    name=name,
                    old=None if old == "none" else old,
                    new=new,
                    labels=(label.replace("_", " "),),
                )
                changes.append(change)
                fetches[name] = uri
            elif row[0] == "-" and len(row) == 3:
                changes.append(Change(name=row[1], old=row[2], new=None))
            elif row[0] not in "h!":
                odd.append(" ".join(row))
        return Simulation(
            changes=tuple(changes),
            problems=tuple(" ".join(row[1:]) for row in rows if row[0] == "!"),
            odd=tuple(odd),
            fetches=fetches,
            held=frozenset(row[1] for row in rows if row[0] == "h"),
        )

    def fetch(self, transaction: Transaction) -> str:
        return self._line("fetch", transaction)

    def run(self, transaction: Transaction, simulation: Simulation) -> str:
        only = ",".join(f"{each.name}:{each.new or 'gone'}" for each in simulation.changes)
        glued = [f"--glued={','.join(names)}"] if (names := simulation.held_and_changed) else []
        return f"{self._line('put', transaction)} {shlex.join([f'--only={only}', *glued])}"

    def update(self, wait_s: int) -> str:
        return line("look", "everywhere")

    def update_ours(self, wait_s: int) -> str:
        return line("look", self.files.sources)

    def exact(self, name: str, version: str) -> str:
        return f"{name}@{version}"

    def build_of(self, name: str, upstream: str) -> str:
        return f"{name}@{upstream}.*"

    def without(self, name: str) -> str:
        return f"!{name}"

    def compare(self, left: str, right: str) -> int:
        numbers = [[int(part) for part in text.split(".")] for text in (left, right)]
        return (numbers[0] > numbers[1]) - (numbers[0] < numbers[1])

    def install(self, names: Sequence[str], wait_s: int) -> Iterator[StringCommand]:
        yield StringCommand(line("put", f"--wait={wait_s}", *names))

    def versions(self, names: Sequence[str]) -> str:
        return line("versions", *names)

    def versions_in(self, lines: Sequence[str]) -> Mapping[str, str]:
        return dict(each.split(" ") for each in lines)

    def hold(self, names: Sequence[str]) -> str:
        return line("glue", *names)

    def unhold(self, names: Sequence[str]) -> str:
        return line("free", *names)

    def owners(self, paths: Sequence[str]) -> str:
        return line("whose", *paths)

    def missing_files(self, folder: str) -> str:
        return line("lost", folder)

    def owners_in(self, lines: Sequence[str]) -> list[str]:
        return list(lines)

    def finish(self) -> str:
        return line("tidy")

    def keyring(self, url: str, sha256: str) -> str:
        return line("key", self.keyring_url(url), sha256)

    def keyring_url(self, url: str) -> str:
        return f"{url}/key"

    def sources_text(self, url: str) -> str:
        return f"from {url}\n"

    def pins_text(
        self,
        branch: int,
        version: str | None,
        toolkit: tuple[str, str] | None,
        absent_pin: str | None = None,
    ) -> str:
        return f"{branch} {version} {toolkit} {absent_pin}\n"

    def archive_pins_text(
        self,
        branch: int,
        version: str | None,
        toolkit: tuple[str, str] | None,
        apart: Sequence[str],
    ) -> str:
        return f"own {branch} {version or ''} {toolkit or ''} {' '.join(apart)}\n"

    def archive_text(self, sources: Sequence[Source]) -> str:
        return "".join(f"from {each.uri} {' '.join(each.components)}\n" for each in sources)

    def on_offer(self, names: Sequence[str]) -> str:
        return line("offer", *names)

    def on_offer_in(self, lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {words[0]: tuple(words[1:]) for words in map(str.split, lines)}

    def unattended_text(self, *, with_kernels: bool = False) -> str:
        return "off\n"

    def set_aside(self, file: str, url: str) -> str:
        return line("forget", file, url)

    def sources_in(self, file: str, lines: Sequence[str]) -> Iterator[Source]:
        for each in lines:
            if each.startswith("from "):
                yield Source(file=file, uri=each.removeprefix("from "), signed_by=None)

    def changes_in(self, rows: Sequence[str]) -> Iterator[PackageChange]:
        for row in rows:
            when, name, new, command = row.split("|")
            yield PackageChange(
                when=when, command=command, by=None, action="Install", name=name, old=None, new=new
            )

    def errors_in(self, lines: Sequence[str]) -> tuple[str, ...]:
        found = [each.removeprefix("ouch: ") for each in lines if each.startswith("ouch: ")]
        return tuple(found or lines)

    def says_script_failed(self, lines: Sequence[str]) -> bool:
        return any("stuck" in each for each in lines)

    def install_by_hand(self, names: Sequence[str]) -> str:
        return line("put", *names)

    def remove_by_hand(self, names: Sequence[str], *, entirely: bool = False) -> str:
        return line("burn" if entirely else "drop", *names)

    def unhold_by_hand(self, name: str) -> str:
        return line("free", name)

    def owner_by_hand(self, path: str) -> str:
        return line("whose", path)

    def offers_by_hand(self, name: str) -> str:
        return line("has", name)

    def finish_by_hand(self) -> str:
        return line("tidy")
