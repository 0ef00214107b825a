"""Do the names by which programs and modprobe find the driver lead to it? Judged, never touched.

A distribution's own packages put a driver beside others, and have alternatives choose: "nvidia" for
its libraries and programs, "glx" for modprobe's rules, by which `modprobe nvidia` loads a
module of another name, nvidia-current-open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_archive import archive, of_ours
from pyinfra_gpu.drift.driver_inventory import packages
from pyinfra_gpu.drift.finding import Finding, Id, Stage, repair, report
from pyinfra_gpu.drift.rules import Rules, known
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Alternative, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.DRIVER

IDS = (
    Id.DRIVER_ALTERNATIVE_DIFFERS,
    Id.DRIVER_MODULE_NAME_DIFFERS,
    Id.DRIVER_MODULE_NAME_FOREIGN,
)
"""What `driver_alternatives.led` repairs."""

RULES = "/etc/modprobe.d/nvidia.conf"
"""The link, by way of both groups, to the rules that name the module."""
_NAME = "nvidia"


def summary(spec: HostSpec, record: Record) -> str:
    """Say nothing where nothing differs: it is how the packages leave it."""
    del spec, record
    return ""


def leads(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return where the groups have to lead: name -> path; {} where the driver has none."""
    own = archive(spec, record)
    return {} if own is None else own.leads(spec.driver.modules)


def wrong(spec: HostSpec, record: Record) -> dict[str, Alternative | None]:
    """Return the groups that lead elsewhere or whose links are broken; None = there is none."""
    there = record.nvidia.alternatives
    if isinstance(there, Unknown):
        return {}
    by_name = {each.name: each for each in there}
    return {
        name: by_name.get(name)
        for name, path in leads(spec, record).items()
        if (one := by_name.get(name)) is None or one.leads_to != path or one.broken
    }


def module_wanted(spec: HostSpec, record: Record) -> str:
    """Return the module that `modprobe nvidia` has to load."""
    own = archive(spec, record)
    return _NAME if own is None else own.modules[spec.driver.modules]


@of_ours
def _groups(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.nvidia.alternatives)
    if not packages(spec, record).installed:
        return
    for name, there in wrong(spec, record).items():
        if there is None:
            found = f"there is no alternative {name}"
        elif there.broken and there.leads_to:
            found = f"{there.broken} does not lead where the alternative {name} says"
        else:
            found = f"the alternative {name} leads to {there.leads_to or 'nothing'}"
        yield repair(
            Id.DRIVER_ALTERNATIVE_DIFFERS,
            found,
            "the declared driver, by which programs and modprobe find it",
            f"select {name} with update-alternatives",
            ("nvidia-alternative", "glx-alternative-*", "libcuda1"),
        )


@of_ours
def _module_name(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the rule; one in a file of somebody's is left alone, for it may be there on purpose."""
    rule, wanted = known(record.driver.module), module_wanted(spec, record)
    name, _, file = (rule or _NAME).partition(" ")
    right = name == wanted or wrong(spec, record)  # the groups come first
    if right or not packages(spec, record).installed:
        return
    found = f"`modprobe nvidia` runs {name}" if "/" in name else f"`modprobe nvidia` loads {name}"
    found += f", by {file}" if file else ", by no rule"
    if file and (file != RULES or archive(spec, record) is None):
        action = "left alone, since the file is not ours: remove that rule; see whose it is"
        command, id_ = f"dpkg -S {file}", Id.DRIVER_MODULE_NAME_FOREIGN
        yield report(id_, found, wanted, action, command, stops=True)
    else:
        packages_ = ("nvidia-alternative", "nvidia-*kernel-support")
        action = f"restore {RULES}"
        yield repair(Id.DRIVER_MODULE_NAME_DIFFERS, found, wanted, action, packages_)


judge = Rules(_groups, _module_name)
