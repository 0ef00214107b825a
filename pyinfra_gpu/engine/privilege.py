"""As whom commands run on a host: root through sudo, the owner of our tree, or the login user."""

from __future__ import annotations

from typing import Any

from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.layout.findings import owner_name


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
    """Return pyinfra's global arguments for work in what the owner has: never as root."""
    if spec.privilege == "none":
        return {"_sudo": False}
    return {"_sudo": True, "_sudo_user": owner_name(spec, record)}


def made_for(spec: HostSpec, record: Record) -> str:
    """Return whose root is to make what the owner has; empty where nobody is root there."""
    return owner_name(spec, record) if spec.privilege == "sudo" else ""


def as_declared_owner(spec: HostSpec) -> dict[str, Any]:
    """Return the same where the host has not been looked at: the owner, or whoever logs in."""
    if spec.privilege == "none" or spec.owner is None:
        return {"_sudo": False}
    return {"_sudo": True, "_sudo_user": spec.owner}


def guard(run_as: dict[str, Any]) -> str:
    """Return what tells our programs to refuse a place that somebody else than root can change.

    + run_as: as whom it runs, from the functions above

    "1" for root by sudo, else empty: who works in a tree of their own may work anywhere in it.
    """
    return "1" if run_as["_sudo"] and run_as["_sudo_user"] is None else ""
