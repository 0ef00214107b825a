"""From a host's flat data to one frozen, checked HostSpec, or to one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pyinfra_gpu.errors import HIDDEN, HOLD_SECRETS, SpecError, nearest, sentence
from pyinfra_gpu.on_host.smoke.options import LARGEST_MIB
from pyinfra_gpu.spec import model
from pyinfra_gpu.spec.model import KEYS, HostSpec, Key
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.presets import KEYS as PRESET_KEYS
from pyinfra_gpu.spec.types import Bad
from pyinfra_gpu.stacks import Stack, catalogue

# pyinfra's own data and its connectors' (arguments, and settings of how to reach the host).
_FOREIGN = ("_", "local_", "fake_", "docker_", "chroot_", "vagrant_", "terraform_")
SSH_KEYS = frozenset(
    f"ssh_{name}"
    for name in (
        *("hostname", "port", "user", "password", "key", "key_password", "config_file"),
        *("known_hosts_file", "strict_host_key_checking", "allow_agent", "look_for_keys"),
        *("forward_agent", "connect_retries", "connect_retry_min_delay", "connect_retry_max_delay"),
        *("file_transfer_protocol", "paramiko_connect_kwargs"),
    )
)
"""pyinfra's own of its SSH connector."""
_PYINFRAS = {"user": "ssh_user", "host": "ssh_hostname", "ssh_host": "ssh_hostname"}
"""What is written for keys of pyinfra's, which are not known here."""
_PLACES: dict[tuple[str | int, ...], Key] = {key.place: key for key in KEYS.values()}
_IN_WORDS = {
    "bool_type": "is not True or False", "float_type": "is not a number",
    "int_type": "is not a whole number", "string_type": "is not text",
    "string_pattern_mismatch": "has another form than is allowed",
    **dict.fromkeys(("string_too_long", "too_long"), "is too long"),
    **dict.fromkeys(("list_type", "tuple_type"), "is not a list"),
    **dict.fromkeys(("dict_type", "model_type"), "is not a dict"),
}  # fmt: skip
"""Pydantic's types of errors, for somebody who never saw Python's names; others in its words."""


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong. Whether all of it fits together is
    `pyinfra_gpu.compatibility`'s to judge: its `resolve` does both.
    """
    for name, value in data.items():
        if name not in KEYS and not _is_foreign(name, value):
            raise _unknown(host, name, value)
    # By None one layer takes back what a more general one says.
    given = {name: data[name] for name in KEYS if data.get(name) is not None}
    nested: dict[str, Any] = {}
    for name, value in given.items():
        part, (*sections, field) = nested, KEYS[name].place
        for each in sections:
            part = part.setdefault(each, {})
        part[field] = value
    try:
        asked = HostSpec.model_validate(nested)
    except ValidationError as error:
        raise _refused(host, given, error.errors(include_url=False)[0]) from None
    return _derived(asked.but(host=host, declared=given))


def _refused(host: str, given: Mapping[str, object], error: ErrorDetails) -> SpecError:
    """Return the error for a value that its key refused: pydantic's reason in our words."""
    place = error["loc"]
    key = next(_PLACES[place[:end]] for end in range(len(place) + 1) if place[:end] in _PLACES)
    value, below = given[key.name], place[len(key.place) :]
    bad = _reason(error)
    found, remedy = bad.problem, bad.remedy.replace("KEY", key.name)
    if below[-1:] == ("[key]",):  # of a dict: its name is what is wrong
        below = tuple(map(str, below[:-1]))
    if inside := ".".join(map(_part, below)):
        found, remedy = f"is wrong: {inside} {found}", remedy or f"correct {inside}, or remove it"
    elif error["type"] == "string_type" and type(value) in (int, float):
        remedy = f"put it in quotes, {key.name} = '{value}', on the command line --data"
        remedy += f" '{key.name}=\"{value}\"' (unquoted, 3.10 is the number 3.1)"
    remedy = remedy or f"set e.g. {key.name} = {key.example!r}, or remove it for {key.default_text}"
    where, allowed = f"host {host}", key.type_text
    return SpecError(sentence(where, key.name, value, found, allowed=allowed, remedy=remedy))


def _reason(error: ErrorDetails) -> Bad:
    """Return pydantic's reason in our words."""
    about, kind = error.get("ctx", {}), error["type"]
    if isinstance(bad := about.get("error"), Bad):
        return bad
    if kind == "extra_forbidden":
        close = nearest(str(error["loc"][-1]), PRESET_KEYS)
        remedy = f"write {close}" if close else f"the keys are {', '.join(PRESET_KEYS)}"
        return Bad("is no known key", remedy)
    if kind == "literal_error":
        close = nearest(str(error["input"]), re.findall("'([^']*)'", about["expected"]))
        return Bad("is not one of the allowed words", f"set KEY = {close!r}" if close else "")
    return Bad(_IN_WORDS.get(kind) or re.sub(r"^\w+ should", "should", error["msg"]))


def _part(part: int | str) -> str:
    """Return where in a value an error is; what is no name may be a secret that lost its place."""
    if isinstance(part, int):
        return f"entry {part + 1}"
    return part if re.fullmatch(r"[\w-]{1,60}", part) else "(no name)"


def _is_foreign(name: object, value: object) -> bool:
    """Return whether a key is pyinfra's own, or a function or module of a group_data file."""
    if not isinstance(name, str) or name in _PYINFRAS:
        return False
    known = name in SSH_KEYS or name.startswith(_FOREIGN)
    return known or callable(value) or type(value).__name__ == "module"


def _unknown(host: str, name: str, value: object) -> SpecError:
    """Return the error for a key that nothing reads, with the one that was probably meant.

    What has parts, and what may have been meant for a key that holds secrets, is not shown.
    """
    close = nearest(str(name).replace("-", "_"), {*KEYS, *SSH_KEYS})
    meant = _PYINFRAS.get(str(name), close)
    remedy = f"write {meant}" if meant else "remove it"
    if isinstance(value, Mapping):
        remedy = "write flat keys, as docs/keys.md lists them"
    parts = isinstance(value, Mapping | list | tuple | set | frozenset)
    if parts or close in HOLD_SECRETS or str(name).lower().startswith("env"):
        value = HIDDEN
    found, allowed = "is no known key", "the keys that docs/keys.md lists"
    return SpecError(sentence(f"host {host}", name, value, found, allowed=allowed, remedy=remedy))


# --- what follows from the stack and from other keys ---


def _derived(asked: HostSpec) -> HostSpec:
    known, stack = catalogue(), catalogue().stacks[asked.stack]
    cpu, gpu, training = stack.accelerator == "cpu", asked.gpu, asked.training
    count = gpu.count if gpu.count is not None else 0 if cpu else 2
    capability = known.gpus[gpu.model].compute_capability if gpu.model else None
    spec = asked.but(
        gpu=gpu.but(count=count, compute_capability=capability),
        accelerator=stack.accelerator,
        paths=Paths(prefix=asked.prefix, name=asked.environment.name),
        training=training if training and training.repo and training.commit else None,
        pytorch=_pytorch(asked.pytorch, stack, capability),
    )
    if cpu:
        none = {
            "driver": model.DriverSpec(source="present", repository=None),
            "cuda": model.CudaSpec(toolkit=False),
            "libcuda": model.LibcudaSpec(),
        }
        own = [key for key in KEYS.values() if key.place[0] in none]
        ignored = tuple(key.name for key in own if key.of(asked) != key.default)
        spec = spec.but(**none, ignored=ignored)
    else:
        spec = spec.but(**_of_gpus(spec, stack))
    return spec.but(smoke=_smoke(spec), preflight=_preflight(spec, stack))


def _of_gpus(asked: HostSpec, stack: Stack) -> dict[str, model.Section]:
    """Return driver and toolkit; without root the driver is only judged, and no toolkit comes."""
    driver, cuda, known = asked.driver, asked.cuda, catalogue()
    mirror, root = driver.repository, asked.privilege == "sudo"
    branch = driver.branch or (stack.driver.branch if stack.driver else 0)
    release, archs = cuda.release or str(stack.cuda), cuda.archs
    if not archs:
        capability, build = asked.gpu.compute_capability, asked.pytorch.build
        archs = known.default_archs(release, capability, stack, build)
    driver = driver.but(
        branch=branch,
        minimum=known.minimum_driver(stack, branch, release),
        repository=mirror and mirror.but(url=mirror.url or known.repositories.url),
        source=driver.source if root else "present",
    )
    return {
        "driver": driver,
        "cuda": cuda.but(release=release, archs=archs, toolkit=cuda.toolkit and root),
    }


def _pytorch(torch: model.PytorchSpec, stack: Stack, capability: str | None) -> model.PytorchSpec:
    known, cuda, building = catalogue(), stack.accelerator != "cpu", torch.building
    version, build = torch.version or stack.torch.version, torch.build or stack.torch.build
    index, extra = torch.index_url, torch.extra_index_url
    if index is None and torch.nightly:
        index = known.index_of(build, nightly=True)
    elif index is None and not known.serves(version, build):
        extra = extra or known.index_of(build)  # beside an index that data names no other is asked
    if building is not None:
        archs = building.archs or ((capability,) if capability else ())
        building = building.but(cuda=cuda, archs=archs if cuda else ())
    return torch.but(
        version=version,
        build=build,
        index_url=index,
        extra_index_url=extra,
        building=building if torch.source == "source" else None,
        uv_version=stack.uv,
    )


def _smoke(spec: HostSpec) -> model.SmokeSpec:
    smoke, count, across = spec.smoke, spec.gpu.count, spec.smoke.across
    mode, ranks = ("gpu" if count > 1 else "rehearsal-1gpu"), count
    if spec.accelerator == "cpu" or spec.rehearsal:
        mode, ranks = "rehearsal-cpu", smoke.ranks
    return smoke.but(
        mode=mode,
        ranks=ranks,
        allreduce_mib=smoke.allreduce_mib or LARGEST_MIB[mode],
        across=across if across and across.hosts else None,
    )


def _preflight(spec: HostSpec, stack: Stack) -> model.PreflightSpec:
    """The stack's, and what a tree and its objects take on a host that may build torch."""
    preflight, building = spec.preflight, spec.pytorch.building
    disk, memory = preflight.min_disk_gib, preflight.min_ram_gib
    if disk is None:
        builds = building and building.builder in (None, spec.host) and not spec.rehearsal
        disk = stack.minimum_disk_gib + (catalogue().build_disk_gib if builds else 0)
    return preflight.but(
        min_disk_gib=disk, min_ram_gib=stack.minimum_ram_gib if memory is None else memory
    )
