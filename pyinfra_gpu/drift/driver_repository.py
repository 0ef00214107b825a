"""Is NVIDIA's repository, and what keeps its packages still, as declared? Judged, never touched."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_archive import (
    archive,
    from_nvidia,
    has_prebuilt,
    lacking,
    ours,
    trusts_nvidia,
)
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, Stage
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.packages.model import Source
    from pyinfra_gpu.spec import HostSpec

MODE = "0644"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """The declared repository, for one host.

    + url: without a slash at its end
    + key_fingerprint: 40 upper-case hexadecimal digits
    + keyring_sha256: digest of its cuda-keyring package
    """

    url: str
    key_fingerprint: str
    keyring_sha256: str


def repository(spec: HostSpec, record: Record) -> Repository | str:
    """Return the repository of this host's own release, or why there is none, as a clause.

    Another release's repository is no way out: a newer package manager refuses keys that older
    ones use.
    """
    declared = spec.driver.repository
    if declared is None:
        return "no repository is declared"
    system = record.system
    known = catalogue().repository(str(system.os_id), str(system.os_version))
    arch = catalogue().repository_arch(str(system.architecture))
    if "{distro}" in declared.url and known is None:
        return f"NVIDIA's repository for {system.os_name} is not known: declare its whole URL"
    if "{arch}" in declared.url and arch is None:
        return f"NVIDIA has no repository for machines of kind {system.architecture}"
    fingerprint = declared.key_fingerprint or (known and known.key_fingerprint)
    digest = declared.keyring_sha256 or (known and known.keyring_sha256)
    if not fingerprint or not digest:
        return "declare `driver_key_fingerprint` and `driver_keyring_sha256` of that repository"
    return Repository(
        url=declared.url_for(known.distro if known else "", arch or ""),
        key_fingerprint=fingerprint.upper(),
        keyring_sha256=digest.lower(),
    )


STAGE = Stage.DRIVER

IDS = (
    Id.DRIVER_ARCHIVE_INCOMPLETE,
    Id.DRIVER_KEYRING_REPLACED,
    Id.DRIVER_SOURCE_DIFFERS,
    Id.DRIVER_SOURCE_TWICE,
    Id.DRIVER_PINS_DIFFER,
    Id.DRIVER_UNATTENDED_UPGRADES_ALLOWED,
)
"""What `driver_repository.trusted` repairs."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this part of the stage cannot do without."""
    if not ours(spec):
        return ()
    source = repository(spec, record)
    if isinstance(source, str) and trusts_nvidia(spec):
        return (CannotTell(source),)
    if not from_nvidia(spec) and lacking(spec, record) is None:
        return (CannotTell("the distribution's own archive is not among its package sources"),)
    paths = files.ALL
    return (
        record.nvidia.sources,
        record.nvidia.archives,
        *(record.layout.entry(path) for path in paths),
    )


def summary(spec: HostSpec, record: Record) -> str:
    """Say what the repository is, where nothing differs."""
    del record
    if ours(spec) and not from_nvidia(spec):
        return "the distribution's archive and pins as declared"
    return "repository and pins as declared" if ours(spec) else ""


def pin_package(spec: HostSpec, record: Record) -> str | None:
    """Return the package that pins the driver, None where none is known for this distribution."""
    branch, os_id = spec.driver.branch, str(record.system.os_id)
    if branch is None or not from_nvidia(spec) or os_id not in catalogue().distributions:
        return None
    return catalogue().pin_package(os_id, branch, spec.driver.version)


def preferences(spec: HostSpec, record: Record, *, alone: bool = False) -> str:
    """Return the text of our pins.

    + alone: whether they say that the repository has no pin package
    """
    toolkit = None
    if spec.cuda.toolkit and spec.cuda.release and spec.cuda.version:
        toolkit = (catalogue().toolkit_package(spec.cuda.release), spec.cuda.version)
    pin = pin_package(spec, record) if alone else None
    branch, version = spec.driver.branch or 0, spec.driver.version
    if (own := archive(spec, record)) is not None:
        return files.preferences(branch, version, toolkit, apart=own.apart)
    return files.preferences(branch, version, toolkit, pin)


def unattended(spec: HostSpec, record: Record) -> str:
    """Return the text of what keeps unattended-upgrades off the driver."""
    return files.unattended(with_kernels=has_prebuilt(spec, record))


def as_declared(record: Record, path: str, *texts: str) -> bool:
    """Tell whether the file at `path` is one of these texts, open to be read by all."""
    entry = record.layout.entry(path)
    if isinstance(entry, Unknown) or entry.kind != "file" or entry.mode != MODE:
        return False
    return entry.sha256 in {hashlib.sha256(text.encode()).hexdigest() for text in texts}


def found_at(record: Record, path: str) -> str:
    """Say in a few words what stands at `path` instead."""
    entry = record.layout.entry(path)
    if isinstance(entry, Unknown):
        return f"{path} is unreadable ({entry.reason})"
    kinds = {"absent": "is missing", "dir": "is a directory, where a file belongs"}
    return f"{path} {kinds.get(entry.kind, 'differs')}"


def writing(record: Record, path: str, how: str = "") -> str:
    """Say what puts `path` right; `how` is in place of "write PATH"."""
    entry = record.layout.entry(path)
    if not isinstance(entry, Unknown) and entry.kind == "dir":
        return f"move that directory away, e.g. `mv {path} {path}.old`: a run leaves it alone"
    return how or f"write {path}"


def twice(record: Record, source: Repository) -> tuple[Source, ...]:
    """Return the other sources of the declared repository; none works where their keys differ."""
    if isinstance(record.nvidia.sources, Unknown):
        return ()
    return tuple(
        each
        for each in record.nvidia.sources
        if each.file != files.SOURCES and each.uri.rstrip("/") == source.url
    )


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is not as declared of keyring, source list, pins and unattended-upgrades.

    An unknown repository is none of them: the operation that needs it refuses.
    """
    if not ours(spec):
        return []
    held = [*_pins(spec, record), *_unattended(spec, record)]
    if not trusts_nvidia(spec):
        return [*_archive(spec, record), *held]
    source = repository(spec, record)
    if isinstance(source, str):
        return []
    of_nvidia = (_keyring(record, source), _source(record, source), _twice(record, source))
    return [*_archive(spec, record), *(each for found in of_nvidia for each in found), *held]


def _archive(spec: HostSpec, record: Record) -> list[Finding]:
    missing, path = lacking(spec, record), files.ARCHIVE
    if not missing or as_declared(record, path, files.archive(missing)):
        return []
    names = dict.fromkeys(name for each in missing for name in each.components)
    return [
        Finding(
            id=Id.DRIVER_ARCHIVE_INCOMPLETE,
            found=f"the package sources do not name {', '.join(names)} of the distribution's"
            " archive",
            expected="the components that its driver is in",
            effect="repair",
            action=writing(record, path),
        )
    ]


def _keyring(record: Record, source: Repository) -> list[Finding]:
    keys = record.nvidia.keyring
    entry = record.layout.entry(system_files.KEYRING)
    readable = not isinstance(entry, Unknown) and entry.mode == MODE
    if keys == (source.key_fingerprint,) and readable:
        return []
    if not isinstance(entry, Unknown) and entry.kind == "dir":
        found = found_at(record, system_files.KEYRING)
    elif isinstance(keys, Unknown):
        found = f"{system_files.KEYRING} holds something else ({keys.reason})"
    elif keys is None:
        found = "no key of NVIDIA's repository"
    elif keys == (source.key_fingerprint,):
        found = f"{system_files.KEYRING} cannot be read by everybody"
    else:
        found = f"{system_files.KEYRING} holds {', '.join(keys) or 'no key'}"
    return [
        Finding(
            id=Id.DRIVER_KEYRING_REPLACED,
            found=found,
            expected=f"the key {source.key_fingerprint}",
            effect="repair",
            action=writing(
                record, system_files.KEYRING, "fetch the repository's keyring and check its key"
            ),
        )
    ]


def _source(record: Record, source: Repository) -> list[Finding]:
    path = files.SOURCES
    if as_declared(record, path, files.sources(source.url)):
        return []
    return [
        Finding(
            id=Id.DRIVER_SOURCE_DIFFERS,
            found=found_at(record, path),
            expected=f"packages from {source.url}",
            effect="repair",
            action=writing(record, path),
        )
    ]


def _twice(record: Record, source: Repository) -> list[Finding]:
    return [
        Finding(
            id=Id.DRIVER_SOURCE_TWICE,
            found=f"{file} names the declared repository a second time",
            expected=f"only {files.SOURCES} to name it",
            effect="repair",
            action=f"set {file} aside as {file}.disabled",
        )
        for file in dict.fromkeys(each.file for each in twice(record, source))
    ]


def _pins(spec: HostSpec, record: Record) -> list[Finding]:
    found, path = [], files.PREFERENCES
    alone = preferences(spec, record, alone=True)
    if not as_declared(record, path, preferences(spec, record), alone):
        wanted = spec.driver.version or f"branch {spec.driver.branch}"
        origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
        found.append(
            Finding(
                id=Id.DRIVER_PINS_DIFFER,
                found=found_at(record, path),
                expected=f"pins that hold the driver to {wanted} from {origin}",
                effect="repair",
                action=writing(record, path),
            )
        )
    return found


def _unattended(spec: HostSpec, record: Record) -> list[Finding]:
    path = files.UNATTENDED
    if as_declared(record, path, unattended(spec, record)):
        return []
    return [
        Finding(
            id=Id.DRIVER_UNATTENDED_UPGRADES_ALLOWED,
            found=found_at(record, path),
            expected="unattended-upgrades kept off NVIDIA's packages",
            effect="repair",
            action=writing(record, path),
        )
    ]
