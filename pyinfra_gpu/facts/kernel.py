"""The installed kernels, and what each of them has of the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRecord(Jsonable):
    """The kernels; "newest" is the one that the next boot takes unless somebody chose another.

    + installed: kernels with a /boot/vmlinuz-KERNEL, oldest first by version
    + modules: of the running and the newest kernel, the version of the module nvidia that
      modprobe would load, None where there is none
    + headers: of the same two, whether /lib/modules/KERNEL/build leads to a Makefile
    + sources: versions of the driver whose module DKMS can build for a kernel to come
    + initramfs: of the newest kernel (of the running one where /boot shows none): "absent";
      "stale" where a file in /etc/modprobe.d that blacklists nouveau or nova, or is ours, is
      newer; else "fresh". Empty where no NVIDIA driver is wanted
    """

    installed: tuple[str, ...] | Unknown
    modules: Mapping[str, str | None] | Unknown
    headers: Mapping[str, bool] | Unknown
    sources: tuple[str, ...] | Unknown
    initramfs: str | Unknown

    @property
    def newest(self) -> str | None:
        """The newest installed kernel; None where none is known."""
        return None if isinstance(self.installed, Unknown) else next(reversed(self.installed), None)


class Kernel(ConcernFact[KernelRecord]):
    """Kernels: `pyinfra INVENTORY fact pyinfra_gpu.facts.kernel.Kernel`."""

    def read(self, fields: Fields) -> KernelRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> KernelRecord:
    """The kernels, from the probe's fields."""
    if not_asked(fields):
        return KernelRecord(installed=(), modules={}, headers={}, sources=(), initramfs="")
    return KernelRecord(
        installed=fields.items("kernel.installed"),
        modules=_modules(fields),
        headers=_headers(fields.items("kernel.headers")),
        sources=fields.items("kernel.source"),
        initramfs=_initramfs(fields.present("kernel.initramfs")),
    )


def _modules(fields: Fields) -> Mapping[str, str | None] | Unknown:
    """The running kernel's is the driver's `on_disk`; the probe asks for the newest beside it."""
    running, on_disk = fields.present("system.kernel"), fields.text("driver.on_disk")
    rows = fields.items("kernel.module")
    if isinstance(running, Unknown):
        return running
    if isinstance(on_disk, Unknown):
        return on_disk
    if isinstance(rows, Unknown):
        return rows
    modules: dict[str, str | None] = {running: on_disk}
    for row in rows:
        kernel, blank, version = row.partition(" ")
        if not blank:
            return Unknown(f"the probe's line {kernel[:60]!r} is incomplete")
        modules[kernel] = None if version == "-" else version
    return modules


def _headers(rows: tuple[str, ...] | Unknown) -> Mapping[str, bool] | Unknown:
    if isinstance(rows, Unknown):
        return rows
    headers = {}
    for row in rows:
        kernel, _, answer = row.partition(" ")
        if answer not in ("0", "1"):
            return Unknown(f"the probe's line {row[:60]!r} is incomplete")
        headers[kernel] = answer == "1"
    return headers


def _initramfs(text: str | Unknown) -> str | Unknown:
    if isinstance(text, Unknown) or text in ("fresh", "stale", "absent"):
        return text
    return Unknown(f"the probe said {text[:40]!r}")
