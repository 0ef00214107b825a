"""Keys that are not ours: pyinfra's own pass, and of any other we say what it was meant to be."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra_gpu.errors import HOLD_SECRETS, Outline, nearest
from pyinfra_gpu.spec.host import KEYS, STAGES
from pyinfra_gpu.spec.key import Key

# pyinfra's own data and its connectors' (arguments, and settings of how to reach the host).
FOREIGN_PREFIXES = ("_", "ssh_", "local_", "fake_", "docker_", "chroot_", "vagrant_", "terraform_")

_MEANT = {word: key.name for key in KEYS.values() for word in key.synonyms}
_SYNONYMS = {"torch": "pytorch", "env": "environment", "train": "training", "nvidia": "driver"}
_NESTED = {**{stage: stage for stage in STAGES}, **_SYNONYMS, "gpu": "preflight", "host": "cuda"}


def is_foreign(key: str, value: object) -> bool:
    """Return whether a key is pyinfra's own, or a function or module of a group_data file."""
    return key.startswith(FOREIGN_PREFIXES) or (
        key not in KEYS and (callable(value) or type(value).__name__ == "module")
    )


def nested_keys(key: str, value: object) -> list[str]:
    """Return the flat keys somebody meant who wrote a stage as one nested dict; else nothing."""
    stage = _NESTED.get(key)
    if stage is None or not isinstance(value, Mapping):
        return []
    named = [f"{stage}_{inner}" for inner in value if f"{stage}_{inner}" in KEYS]
    return named or [known.name for known in KEYS.values() if known.stage == stage]


def told(key: object, value: object) -> object:
    """Return what an error may show in the place of an unknown key's value.

    Nobody has said what is in it: of what has parts, and of what was meant for a key that may hold
    secrets, the names are shown alone.
    """
    secret = isinstance(key, str) and (
        _NESTED.get(key.casefold()) == "environment"
        or meant(key) in [f"write {name}" for name in HOLD_SECRETS]
    )
    parts = isinstance(value, Mapping | list | tuple | set | frozenset)
    return Outline(value) if secret or parts else value


def meant(key: str) -> str:
    """Return the remedy for an unknown key: the key it most likely is, or to remove it."""
    plain = key.casefold().replace("-", "_")
    first, _, rest = plain.partition("_")
    full = f"{_SYNONYMS.get(first, first)}_{rest}" if rest else plain
    certain = full if full in KEYS else _MEANT.get(full, _MEANT.get(plain))
    if certain is not None:
        return f"write {certain}"
    owner = _other_stage(full)
    if owner is not None:
        return f"write {owner.name}, a key of the {owner.stage} stage"
    close = nearest(full, KEYS)
    return f"write {close}" if close is not None else "remove it"


def _other_stage(key: str) -> Key | None:
    """Return another stage's key that ends like `key`, e.g. training_commit for smoke_commit."""
    stage, _, suffix = key.partition("_")
    if stage not in STAGES:
        stage, suffix = "", key
    owners = [
        known
        for known in KEYS.values()
        if known.name.partition("_")[2] == suffix and known.stage != stage
    ]
    return owners[0] if len(owners) == 1 else None
