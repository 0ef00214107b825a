"""Is NVIDIA's repository, and what keeps its packages still, as declared? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_inventory import archive, from_nvidia, of_ours, trusts_nvidia
from pyinfra_gpu.drift.files import File, differs
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, repair
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

IDS = (
    Id.DRIVER_KEYRING_REPLACED,
    Id.DRIVER_SOURCE_DIFFERS,
    Id.DRIVER_PINS_DIFFER,
    Id.DRIVER_BLACKLIST_DIFFERS,
)
"""What `driver.trusted` repairs."""

MODE = "0644"
_RULES = (
    "blacklist nouveau",
    "options nouveau modeset=0",
    # The new free driver has names of its own since Linux 6.15.
    "blacklist nova_core",
    "blacklist nova_drm",
)
BLACKLIST = File(
    path=system_files.MODPROBE,
    content=(system_files.HEADER + "".join(f"{rule}\n" for rule in _RULES)).encode(),
)


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
    release = catalogue().repository(str(system.os_id), str(system.os_version))
    arch = catalogue().repository_arch(str(system.architecture))
    if "{distro}" in declared.url and release is None:
        return f"NVIDIA's repository for {system.os_name} is not known: declare its whole URL"
    if "{arch}" in declared.url and arch is None:
        return f"NVIDIA has no repository for machines of kind {system.architecture}"
    fingerprint = declared.key_fingerprint or (release and release.key_fingerprint)
    digest = declared.keyring_sha256 or (release and release.keyring_sha256)
    if not fingerprint or not digest:
        return "declare `driver_key_fingerprint` and `driver_keyring_sha256` of that repository"
    return Repository(
        url=declared.url_for(release.distro if release else "", arch or ""),
        key_fingerprint=fingerprint.upper(),
        keyring_sha256=digest.lower(),
    )


def trusted(spec: HostSpec, record: Record) -> Repository | None:
    """Return NVIDIA's repository where it is needed; raises CannotTell where there is none."""
    if not trusts_nvidia(spec):
        return None
    source = repository(spec, record)
    if isinstance(source, str):
        raise CannotTell(source)
    return source


def pins(spec: HostSpec, record: Record) -> File:
    """Return the file of our pins."""
    driver, toolkit, own = spec.driver, None, archive(spec, record)
    if spec.cuda.toolkit and spec.cuda.release and spec.cuda.version:
        toolkit = (catalogue().toolkit_package(spec.cuda.release), spec.cuda.version)
    apart = own.apart if own else None
    text = files.preferences(driver.branch or 0, driver.version, toolkit, apart=apart)
    return File(path=files.PREFERENCES, content=text.encode())


@dataclass(frozen=True, slots=True)
class Declared:
    """A file of ours, and what it is for."""

    id: Id
    expected: str
    file: File


def declared(spec: HostSpec, record: Record) -> Iterator[Declared]:
    """Yield our files: pins come before the list of the packages that they are to judge."""
    wanted = spec.driver.version or f"branch {spec.driver.branch}"
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    with_kernels = files.unattended(with_kernels=archive(spec, record) is not None)
    held = File(path=files.UNATTENDED, content=with_kernels.encode())
    yield Declared(
        Id.DRIVER_PINS_DIFFER,
        f"pins that hold the driver to {wanted} from {origin}",
        pins(spec, record),
    )
    kept_off = "unattended-upgrades kept off NVIDIA's packages"
    yield Declared(Id.DRIVER_PINS_DIFFER, kept_off, held)
    free = "nouveau and nova kept off the GPUs"
    yield Declared(Id.DRIVER_BLACKLIST_DIFFERS, free, BLACKLIST)
    if source := trusted(spec, record):
        listed = File(path=files.SOURCES, content=files.sources(source.url).encode())
        yield Declared(Id.DRIVER_SOURCE_DIFFERS, f"packages from {source.url}", listed)


def twice(record: Record, source: Repository) -> list[str]:
    """Return the other lists with the declared repository; none works where their keys differ."""
    return list(
        dict.fromkeys(
            each.file
            for each in known(record.nvidia.sources)
            if each.file != files.SOURCES and each.uri.rstrip("/") == source.url
        )
    )


def _writing(record: Record, path: str, how: str) -> str:
    """Say what puts a file right: a directory in its place is left alone."""
    entry = if_known(record.layout.entry(path), None)
    if entry and entry.kind == "dir":
        return f"move that directory away, e.g. `mv {path} {path}.old`: a run leaves it alone"
    return how


@of_ours
def _keyring(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if (source := trusted(spec, record)) is None:
        return
    keys, path = record.nvidia.keyring, system_files.KEYRING
    entry = known(record.layout.entry(path))
    right = keys == (source.key_fingerprint,)
    if right and entry.mode == MODE:
        return
    if entry.kind == "dir":
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


@of_ours
def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    for each in declared(spec, record):
        if found := differs(record, each.file):
            path = each.file.path
            yield repair(each.id, found[0], each.expected, _writing(record, path, f"write {path}"))


@of_ours
def _twice(spec: HostSpec, record: Record) -> Iterator[Finding]:
    source = trusted(spec, record)
    for file in twice(record, source) if source else ():
        yield repair(
            Id.DRIVER_SOURCE_DIFFERS,
            f"{file} names the declared repository a second time",
            f"only {files.SOURCES} to name it",
            f"set {file} aside as {file}.disabled",
        )


RULES = (_keyring, _files, _twice)
