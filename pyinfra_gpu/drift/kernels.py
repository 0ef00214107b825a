"""Which kernels the driver's module must be ready for: the running one and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record


def next_kernel(record: Record) -> str | None:
    """Return the kernel that the next boot takes; None where it cannot be told."""
    if isinstance(record.kernel.installed, Unknown) or isinstance(record.system.kernel, Unknown):
        return None
    return record.kernel.newest or record.system.kernel


def kernels(record: Record) -> tuple[str, ...]:
    """Return the running kernel and, where it is another, the next one."""
    running = record.system.kernel
    following = next_kernel(record)
    names = [name for name in (running, following) if isinstance(name, str)]
    return tuple(dict.fromkeys(names))


def without_headers(record: Record) -> tuple[str, ...]:
    """Return those of both kernels for which no module could be built."""
    headers = record.kernel.headers
    if isinstance(headers, Unknown):
        return ()
    return tuple(kernel for kernel in kernels(record) if headers.get(kernel) is False)
