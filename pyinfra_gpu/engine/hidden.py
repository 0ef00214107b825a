"""Named entries that a host's own data hides: pyinfra takes a key from one place, whole.

Host data stands over group data, and that is so for dicts as well: presets of a group are gone
where the inventory declares one preset of its own. That is pyinfra's rule, and a person may mean
it; it is said, once for all hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.host_names import brief
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra.api.host import Host

NAMED = ("training_presets", "environment_variables")
"""Keys that are dicts of names."""

_SHOWN = 5


def hidden(hosts: Sequence[Host]) -> list[str]:
    """Return one sentence for each key and place whose entries do not count for some hosts."""
    found: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for host in hosts:
        layers = _layers(host)
        for key in NAMED:
            for above, below, names in _hidden_of(layers, key):
                found.setdefault((key, above, below, names), []).append(host.name)
    return [
        f"{key} of {brief(names)}: only what {above} declares counts, and hides what {below} adds"
        f" ({some(entries, _SHOWN)}): declare all of them in one place"
        for (key, above, below, entries), names in found.items()
    ]


def _hidden_of(
    layers: Sequence[tuple[str, Any]], key: str
) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (the place that counts, the one that does not, the names that are only there)."""
    declared = [
        (place, data[key])
        for place, data in layers
        if isinstance(data, Mapping) and isinstance(data.get(key), Mapping)
    ]
    if not declared:
        return []
    (above, counts), *others = declared
    only = {
        place: tuple(str(name) for name in each if name not in counts) for place, each in others
    }
    return [(above, place, names) for place, names in only.items() if names]


def _layers(host: Host) -> list[tuple[str, Any]]:
    """Return what a host's data comes from and what stands there, what counts first."""
    inventory: Any = host.inventory
    groups = [each for each in reversed(host.groups) if each != "all"]
    return [
        ("--data", inventory.get_override_data()),
        ("the inventory", inventory.get_host_data(host.name)),
        *((f"group {each}", inventory.get_group_data(each)) for each in groups),
        ("group all", inventory.get_group_data("all")),
        ("group all", inventory.get_data()),
    ]
