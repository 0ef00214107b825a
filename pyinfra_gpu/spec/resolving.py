"""From a host's flat data to one frozen, checked HostSpec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec.host import KEYS, HostSpec
from pyinfra_gpu.spec.key import Given, Key, build
from pyinfra_gpu.spec.unfit import error, refuse_unfit
from pyinfra_gpu.spec.unknown import is_foreign, meant, nested_keys, told
from pyinfra_gpu.spec.values import BadValueError
from pyinfra_gpu.stacks import catalogue


def allowed_keys() -> dict[str, Key]:
    """Return every data key of ours by name, in the order of the documentation."""
    return dict(KEYS)


def check_data(data: Mapping[str, object], where: str) -> dict[str, Any]:
    """Check the keys of one layer of data by themselves; the layer need not be complete.

    `where` names the layer in errors, e.g. "group_data/gpu.py". Returns the accepted values in
    their final form; pyinfra's own keys are left out. Raises SpecError at the first mistake.
    """
    values: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(name, str) and is_foreign(name, value):
            continue
        key = KEYS.get(name)
        flat = nested_keys(name, value) if isinstance(name, str) else []
        if flat:
            problem = "is a nested dict, which pyinfra would replace as a whole instead of merging"
            remedy = f"write {', '.join(flat)} instead"
            raise error(where, name, told(name, value), problem, "flat keys only", remedy)
        if key is None:
            problem = "is a key that nothing reads"
            remedy = meant(name) if isinstance(name, str) else "remove it"
            allowed = "the keys that docs/keys.md lists"
            raise error(where, name, told(name, value), problem, allowed, remedy)
        try:
            values[name] = key.check(value)
        except BadValueError as bad:
            raise _wrong(key, value, bad, data, where) from None
    return values


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, or if keys do not fit each other. Whether the
    versions work together is `pyinfra_gpu.compatibility`'s to judge: its `resolve` does both.
    """
    where = f"host {host}"
    given = Given(host, check_data(data, where), KEYS, catalogue())
    refuse_unfit(given, where)
    return build(HostSpec, given)


def _wrong(
    key: Key, value: object, bad: BadValueError, data: Mapping[str, object], where: str
) -> SpecError:
    """Return the error for a value its key refused."""
    remedy = bad.remedy and bad.remedy.replace("KEY", key.name)
    if remedy is None and bad.suggestion is not None:
        remedy = f"set {key.name} = {bad.suggestion!r}"
    elif remedy is None and key.remedy is not None:
        remedy = key.remedy(data)
    elif remedy is None:
        remedy = f"set e.g. {key.name} = {key.example!r}, or remove it for {key.default_text}"
    return error(where, key.name, value, bad.problem, bad.allowed or key.type_text, remedy)
