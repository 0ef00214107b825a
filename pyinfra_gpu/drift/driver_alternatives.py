"""Do the names by which programs and modprobe find the driver lead to it? Judged, never touched.

A distribution's own packages put a driver beside others, and have alternatives choose: "nvidia" for
its libraries and programs, "glx" for modprobe's rules, by which `modprobe nvidia` loads a
module of another name, nvidia-current-open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_archive import archive, ours
from pyinfra_gpu.drift.driver_inventory import packages
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import manager_for

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


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this part of the stage cannot do without."""
    return (record.nvidia.alternatives, record.driver.module) if ours(spec) else ()


def summary(spec: HostSpec, record: Record) -> str:
    """Say nothing where nothing differs: it is how the packages leave it."""
    del spec, record
    return ""


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return which alternatives and which rule of modprobe's lead elsewhere."""
    if not ours(spec) or not packages(spec, record).installed:
        return []
    found = [_differs(*each) for each in wrong(spec, record).items()]
    return found or _module_name(spec, record)


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


def _differs(name: str, there: Alternative | None) -> Finding:
    if there is None:
        found = f"there is no alternative {name}"
    elif there.broken and there.leads_to:
        found = f"{there.broken} does not lead where the alternative {name} says"
    else:
        found = f"the alternative {name} leads to {there.leads_to or 'nothing'}"
    return Finding(
        id=Id.DRIVER_ALTERNATIVE_DIFFERS,
        found=found,
        expected="the declared driver, by which programs and modprobe find it",
        effect="repair",
        action=f"have update-alternatives choose {name} anew",
        packages=("nvidia-alternative", "glx-alternative-*", "libcuda1"),
    )


def module_wanted(spec: HostSpec, record: Record) -> str:
    """Return the module that `modprobe nvidia` has to load."""
    own = archive(spec, record)
    return _NAME if own is None else own.modules[spec.driver.modules]


def _module_name(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge the rule; one in a file of somebody's is left alone, for it may be there on purpose."""
    rule, wanted = record.driver.module, module_wanted(spec, record)
    if isinstance(rule, Unknown):
        return []
    name, _, file = (rule or _NAME).partition(" ")
    if name == wanted:
        return []
    theirs = bool(file) and (file != RULES or archive(spec, record) is None)
    found = f"`modprobe nvidia` runs {name}" if "/" in name else f"`modprobe nvidia` loads {name}"
    found += f", by {file}" if file else ", by no rule"
    if not theirs:
        return [
            Finding(
                id=Id.DRIVER_MODULE_NAME_DIFFERS,
                found=found,
                expected=wanted,
                effect="repair",
                action=f"bring back what {RULES} leads to",
                packages=("nvidia-alternative", "nvidia-*kernel-support"),
            )
        ]
    return [
        Finding(
            id=Id.DRIVER_MODULE_NAME_FOREIGN,
            found=found,
            expected=wanted,
            effect="report",
            stops=True,
            action="left alone, since the file is not ours: remove that rule; see whose it is",
            command=manager_for(record.system.os_id).owner_by_hand(file),
        )
    ]
