"""As whom commands run on a host: root through sudo, the owner of our tree, or the login user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift.layout import owner_name

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def as_root(spec: HostSpec) -> dict[str, Any]:
    """Return pyinfra's global arguments for work that needs root (packages, /opt).

    With ``privilege = "none"`` nothing outside the user's own directories is touched, so there is
    nothing to be root for. A sudo password comes from pyinfra itself (``_sudo_password`` in data,
    or ``--same-sudo-password``).
    """
    if spec.privilege == "none":
        return {"_sudo": False}
    return {"_sudo": True, "_sudo_user": None}


def as_owner(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return pyinfra's global arguments for work inside our tree: never as root."""
    if spec.privilege == "none":
        return {"_sudo": False}
    return {"_sudo": True, "_sudo_user": owner_name(spec, record)}


def file_owner(spec: HostSpec, record: Record) -> str | None:
    """Return who our files are given to; None without root, where they are the login user's."""
    return owner_name(spec, record) if spec.privilege == "sudo" else None
