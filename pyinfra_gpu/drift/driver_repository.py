"""Is NVIDIA's repository, and what keeps its packages still, as declared? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_inventory import archive, from_nvidia, of_ours, ours, trusts_nvidia
from pyinfra_gpu.drift.files import File, differs
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, Stage, repair
from pyinfra_gpu.drift.rules import Rules, if_known, known
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
    Id.DRIVER_KEYRING_REPLACED,
    Id.DRIVER_SOURCE_DIFFERS,
    Id.DRIVER_SOURCE_TWICE,
    Id.DRIVER_PINS_DIFFER,
    Id.DRIVER_UNATTENDED_UPGRADES_ALLOWED,
)
"""What `driver_repository.trusted` repairs."""


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


def pins(spec: HostSpec, record: Record) -> tuple[File, File]:
    """Return the file of our pins, as it is beside NVIDIA's pin package and where it is alone."""
    together, alone = (preferences(spec, record, alone=each).encode() for each in (False, True))
    path = files.PREFERENCES
    return File(path=path, content=together), File(path=path, content=alone)


def source_list(source: Repository) -> File:
    """Return the list of NVIDIA's repository."""
    return File(path=files.SOURCES, content=files.sources(source.url).encode())


def unattended(spec: HostSpec, record: Record) -> File:
    """Return what keeps unattended-upgrades off the driver."""
    text = files.unattended(with_kernels=archive(spec, record) is not None)
    return File(path=files.UNATTENDED, content=text.encode())


def written(record: Record, id_: Id, expected: str, *variants: File) -> Iterator[Finding]:
    """Judge a file of ours, which may have any of these contents."""
    there = [differs(record, each) for each in variants]
    if all(there) and (first := there[0]):
        path = variants[0].path
        yield repair(id_, first[0], expected, _writing(record, path, f"write {path}"))


def _writing(record: Record, path: str, how: str) -> str:
    """Say what puts a file right: a directory in its place is left alone."""
    entry = if_known(record.layout.entry(path), None)
    if entry and entry.kind == "dir":
        return f"move that directory away, e.g. `mv {path} {path}.old`: a run leaves it alone"
    return how


def twice(record: Record, source: Repository) -> tuple[Source, ...]:
    """Return the other sources of the declared repository; none works where their keys differ."""
    if isinstance(record.nvidia.sources, Unknown):
        return ()
    return tuple(
        each
        for each in record.nvidia.sources
        if each.file != files.SOURCES and each.uri.rstrip("/") == source.url
    )


@of_ours
def _known(spec: HostSpec, record: Record) -> Iterator[Finding | CannotTell]:
    """Ask for what has to be known; an unknown repository is told, and nothing is judged by it."""
    source = repository(spec, record)
    if isinstance(source, str) and trusts_nvidia(spec):
        yield CannotTell(source)
    else:
        known(record.nvidia.sources)
        for path in files.ALL:
            known(record.layout.entry(path))


def _trusted(spec: HostSpec, record: Record) -> Repository | None:
    source = repository(spec, record) if trusts_nvidia(spec) else None
    return None if isinstance(source, str) else source


def _keyring(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if (source := _trusted(spec, record)) is None:
        return
    keys, path = record.nvidia.keyring, system_files.KEYRING
    entry = if_known(record.layout.entry(path), None)
    right = keys == (source.key_fingerprint,)
    if right and entry and entry.mode == MODE:
        return
    if entry and entry.kind == "dir":
        found = f"{path} is a directory"
    elif isinstance(keys, Unknown):
        found = f"{path} holds something else ({keys.reason})"
    elif keys is None:
        found = "no key of NVIDIA's repository"
    elif right:
        found = f"{path} cannot be read by everybody"
    else:
        found = f"{path} holds {', '.join(keys) or 'no key'}"
    action = _writing(record, path, "fetch the repository's keyring and check its key")
    yield repair(Id.DRIVER_KEYRING_REPLACED, found, f"the key {source.key_fingerprint}", action)


def _source(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if source := _trusted(spec, record):
        expected = f"packages from {source.url}"
        yield from written(record, Id.DRIVER_SOURCE_DIFFERS, expected, source_list(source))
        for file in dict.fromkeys(each.file for each in twice(record, source)):
            yield repair(
                Id.DRIVER_SOURCE_TWICE,
                f"{file} names the declared repository a second time",
                f"only {files.SOURCES} to name it",
                f"set {file} aside as {file}.disabled",
            )


@of_ours
def _pins(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if trusts_nvidia(spec) and _trusted(spec, record) is None:
        return
    wanted = spec.driver.version or f"branch {spec.driver.branch}"
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    expected = f"pins that hold the driver to {wanted} from {origin}"
    yield from written(record, Id.DRIVER_PINS_DIFFER, expected, *pins(spec, record))
    expected = "unattended-upgrades kept off NVIDIA's packages"
    id_ = Id.DRIVER_UNATTENDED_UPGRADES_ALLOWED
    yield from written(record, id_, expected, unattended(spec, record))


judge = Rules(_known, _keyring, _source, _pins)
