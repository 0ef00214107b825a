"""A lock of a nightly: its own files are those that this machine keeps, the rest is resolved."""

from __future__ import annotations

from email.parser import BytesParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from pyinfra_gpu.engine import nightlies
from pyinfra_gpu.locking.errors import LockingError
from pyinfra_gpu.locking.needs import Wanted
from pyinfra_gpu.locking.wheel_file import Found, WheelFile
from pyinfra_gpu.output import show
from pyinfra_gpu.spec.lock import Locked


def kept(wanted: Wanted) -> tuple[Found, list[str]]:
    """Return the nightly's own packages by the digests of the kept files, and what else it needs.

    What is not kept yet is fetched and kept now. Raises LockingError.
    """
    urls = [each for each in wanted.indexes if not each.startswith("--")]
    indexes = urls[::-1]  # the further one is believed first, as on hosts
    try:
        place, files = nightlies.kept(
            wanted.torch, wanted.platform, indexes, lambda line: show(line, "lock")
        )
        needs = [each for file in files for each in _requires(place / file.name)]
    except nightlies.NightlyError as error:
        raise LockingError(f"the nightly torch {wanted.torch} {error}") from None
    own = [_package(file, place) for file in files]
    names = {package.name for package, _ in own}
    return own, [str(each) for each in needs if canonicalize_name(each.name) not in names]


def _package(file: nightlies.File, place: Path) -> tuple[Locked, tuple[WheelFile, ...]]:
    name, version, _, _ = parse_wheel_filename(file.name)
    path = (place / file.name).absolute()
    size = path.stat().st_size
    there = WheelFile(name=file.name, url=path.as_uri(), sha256=file.sha256, size=size)
    return Locked(name=name, version=str(version), digests=(file.sha256,)), (there,)


def _requires(wheel: Path) -> list[Requirement]:
    """Return what a wheel needs, but for its extras, which nobody asks for."""
    said = BytesParser().parsebytes(nightlies.metadata(wheel)).get_all("Requires-Dist", [])
    needs = [Requirement(str(each)) for each in said]
    return [each for each in needs if "extra" not in str(each.marker or "")]
