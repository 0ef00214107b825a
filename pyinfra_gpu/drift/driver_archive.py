"""Where the driver comes from, and what the distribution's own archive has of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import TYPE_CHECKING

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.model import Source
from pyinfra_gpu.packages.names import is_archive_key
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import CannotTell, Finding
    from pyinfra_gpu.drift.rules import Rule
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.stacks import Archive

_POCKETS = ("", "-updates", "-security")


def ours(spec: HostSpec) -> bool:
    """Tell whether the driver is ours to keep on this host."""
    return spec.accelerator == "nvidia" and spec.driver.source != "present"


def of_ours(rule: Rule) -> Rule:
    """Make a rule one that is asked only where the driver is ours to keep."""

    @wraps(rule)
    def asked(spec: HostSpec, record: Record) -> Iterator[Finding | CannotTell]:
        if ours(spec):
            yield from rule(spec, record)

    return asked


def from_nvidia(spec: HostSpec) -> bool:
    """Tell whether the driver comes from NVIDIA's repository, and not from the distribution's."""
    return spec.driver.source == "nvidia"


def trusts_nvidia(spec: HostSpec) -> bool:
    """Tell whether NVIDIA's repository is needed: for the driver, or else for the toolkit."""
    return ours(spec) and (from_nvidia(spec) or spec.cuda.toolkit)


def archive(spec: HostSpec, record: Record) -> Archive | None:
    """Return what is known of the archive that the driver comes from; None = from NVIDIA's."""
    if from_nvidia(spec) or not ours(spec):
        return None
    return catalogue().archives.get(str(record.system.os_id))


def has_prebuilt(spec: HostSpec, record: Record) -> bool:
    """Tell whether the module is one that the distribution built and signed."""
    known = archive(spec, record)
    return known is not None and known.prebuilt is not None


def lacking(spec: HostSpec, record: Record) -> tuple[Source, ...] | None:
    """Return what the lists do not name of the archive that the driver comes from.

    One for each suite of it that they do name, with the components that are missing there; ours do
    not count. None where none of the lists is the distribution's own archive: a suite of its code
    name, with its own key or with any.
    """
    own, listed = archive(spec, record), record.nvidia.archives
    release = catalogue().archive_release(f"{record.system.os_id} {record.system.os_version}")
    if own is None or release is None or isinstance(listed, Unknown):
        return ()
    suites = {release.codename + pocket for pocket in _POCKETS}
    there: dict[tuple[str, str], tuple[str | None, set[str]]] = {}
    for each in listed:
        key = each.signed_by
        # Ours may be read by everybody, so that no password of an address may come into it.
        if each.file == files.ARCHIVE or "@" in each.uri:
            continue
        if key and not is_archive_key(key):
            continue
        for suite in suites & {suite.rstrip("/") for suite in each.suites}:
            there.setdefault((each.uri, suite), (key, set()))[1].update(each.components)
    if not any("main" in names for _, names in there.values()):
        return None
    return tuple(
        Source(file="", uri=uri, signed_by=key, suites=(suite,), components=missing)
        for (uri, suite), (key, names) in sorted(there.items())
        if "main" in names
        if (missing := tuple(name for name in own.components if name not in names))
    )
