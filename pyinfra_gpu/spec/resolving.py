"""From a host's flat data to one frozen, checked HostSpec, or to one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pyinfra_gpu.errors import HOLD_SECRETS, Outline, Problem, SpecError, nearest
from pyinfra_gpu.on_host.smoke.options import LARGEST_MIB
from pyinfra_gpu.spec import model
from pyinfra_gpu.spec.model import KEYS, HostSpec, Key
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.presets import Preset
from pyinfra_gpu.spec.types import Bad
from pyinfra_gpu.spec.unfit import problems
from pyinfra_gpu.stacks import Stack, catalogue

# pyinfra's own data and its connectors' (arguments, and settings of how to reach the host).
_FOREIGN = ("_", "ssh_", "local_", "fake_", "docker_", "chroot_", "vagrant_", "terraform_")
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

    Raises SpecError if a key or value is wrong, or if keys do not fit each other. Whether the
    versions work together is `pyinfra_gpu.compatibility`'s to judge: its `resolve` does both.
    """
    asked = _asked(data, host)
    spec = _derived(asked, host)
    declared = {name for name, value in data.items() if value is not None and name in KEYS}
    for problem in problems(asked, spec, declared):
        value = data.get(problem.key, KEYS[problem.key].default)
        raise SpecError(problem.sentence(host, value))
    return spec


def _asked(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what data declares, each value checked; what is derived is not there yet."""
    nested: dict[str, Any] = {}
    for name, value in data.items():
        key = KEYS.get(name)
        if key is None:
            if not _is_foreign(name, value):
                raise _unknown(host, name, value)
        elif value is not None:  # by None one layer takes back what a more general one says
            part = nested
            for step in key.place[:-1]:
                part = part.setdefault(step, {})
            part[key.place[-1]] = value
    try:
        return HostSpec.model_validate(nested)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = first["loc"]
        key = next(_PLACES[place[:end]] for end in range(len(place) + 1) if place[:end] in _PLACES)
        value = data[key.name]
        raise SpecError(_problem(key, value, first).sentence(host, value)) from None


def _problem(key: Key, value: object, error: ErrorDetails) -> Problem:
    """Return what is wrong with a value that its key refused: pydantic's reason in our words."""
    bad = _reason(error)
    found, remedy = bad.problem, bad.remedy and bad.remedy.replace("KEY", key.name)
    below = error["loc"][len(key.place) :]
    if below[-1:] == ("[key]",):  # of a dict: its name is what is wrong
        below = tuple(map(str, below[:-1]))
    if inside := ".".join(map(_part, below)):
        found, remedy = f"is wrong: {inside} {found}", remedy or f"correct {inside}, or remove it"
    elif error["type"] == "string_type" and type(value) in (int, float):
        remedy = f"put it in quotes, {key.name} = '{value}', on the command line --data"
        remedy += f" '{key.name}=\"{value}\"' (unquoted, 3.10 is the number 3.1)"
    elif bad.suggestion is not None:
        remedy = f"set {key.name} = {bad.suggestion!r}"
    remedy = remedy or f"set e.g. {key.name} = {key.example!r}, or remove it for {key.default_text}"
    return Problem(key.name, found, key.type_text, remedy)


def _reason(error: ErrorDetails) -> Bad:
    about, kind = error.get("ctx", {}), error["type"]
    bad = about.get("error")
    if isinstance(bad, Bad):
        return bad
    if kind == "extra_forbidden":
        close = nearest(str(error["loc"][-1]), Preset.model_fields)
        remedy = f"write {close}" if close else f"the keys are {', '.join(Preset.model_fields)}"
        return Bad("is a key that nothing reads", remedy)
    if kind == "literal_error":
        words = re.findall("'([^']*)'", about["expected"])
        suggestion = nearest(str(error["input"]), words)
        return Bad("is not one of the allowed words", suggestion=suggestion)
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
    return name.startswith(_FOREIGN) or callable(value) or type(value).__name__ == "module"


def _unknown(host: str, name: str, value: object) -> SpecError:
    """Return the error for a key that nothing reads, with the one that was probably meant.

    Of what has parts, and of what may have been meant for a key that holds secrets, the names are
    shown alone.
    """
    close = nearest(str(name).replace("-", "_"), KEYS)
    meant = _PYINFRAS.get(str(name), close)
    remedy = f"write {meant}" if meant else "remove it"
    if isinstance(value, Mapping):
        remedy = "write flat keys, as docs/keys.md lists them"
    parts = isinstance(value, Mapping | list | tuple | set | frozenset)
    if parts or close in HOLD_SECRETS or str(name).lower().startswith("env"):
        value = Outline(value)
    found, allowed = "is a key that nothing reads", "the keys that docs/keys.md lists"
    return SpecError(Problem(name, found, allowed, remedy).sentence(host, value))


def _derived(asked: HostSpec, host: str) -> HostSpec:
    """Return the spec with everything that follows from the stack and from other keys."""
    known, stack = catalogue(), catalogue().stacks[asked.stack]
    cpu, gpu, training = stack.accelerator == "cpu", asked.gpu, asked.training
    if gpu.model is not None:
        gpu = gpu.but(compute_capability=known.gpus[gpu.model].compute_capability)
    if gpu.count is None:
        gpu = gpu.but(count=0 if cpu else 2)
    asked = asked.but(
        host=host,
        gpu=gpu,
        accelerator=stack.accelerator,
        paths=Paths(prefix=asked.prefix, name=asked.environment.name),
        training=training if training and training.repo and training.commit else None,
    )
    if cpu:
        none = {
            "driver": model.DriverSpec(source="present", repository=None),
            "cuda": model.CudaSpec(toolkit=False),
            "libcuda": model.LibcudaSpec(),
        }
        own = [key for key in KEYS.values() if key.place[0] in none]
        said = tuple(key.name for key in own if key.of(asked) != key.of(HostSpec()))
        asked = asked.but(**none, ignored=said)
    asked = asked.but(pytorch=_pytorch(asked, stack))
    if not cpu:
        asked = asked.but(driver=_driver(asked, stack), cuda=_cuda(asked, stack))
    return asked.but(smoke=_smoke(asked), preflight=_preflight(asked, stack))


def _driver(asked: HostSpec, stack: Stack) -> model.DriverSpec:
    driver, known = asked.driver, catalogue()
    branch = driver.branch or (stack.driver.branch if stack.driver else None)
    release, mirror = asked.cuda.release or stack.cuda, driver.repository
    return driver.but(
        branch=branch,
        minimum=known.minimum_driver(stack, branch, release) if branch and release else None,
        repository=mirror and mirror.but(url=mirror.url or known.repositories.url),
        source=driver.source if asked.privilege == "sudo" else "present",
    )


def _cuda(asked: HostSpec, stack: Stack) -> model.CudaSpec:
    cuda, archs = asked.cuda, asked.cuda.archs
    release, capability = cuda.release or stack.cuda, asked.gpu.compute_capability
    if not archs and release is not None:
        archs = catalogue().default_archs(release, capability, stack, asked.pytorch.build)
    toolkit = cuda.toolkit and asked.privilege == "sudo"
    return cuda.but(release=release, archs=archs, toolkit=toolkit)


def _pytorch(asked: HostSpec, stack: Stack) -> model.PytorchSpec:
    torch, known = asked.pytorch, catalogue()
    version, build = torch.version or stack.torch.version, torch.build or stack.torch.build
    index, extra, local = torch.index_url, torch.extra_index_url, not known.serves(version, build)
    if index is None and torch.nightly:
        index = known.nightly_index_of(build)
    elif index is None and local:  # beside an index that data names no other is asked
        extra = extra or known.index_of(build)
    building = torch.building if torch.source == "source" else None
    if building is not None:
        cuda, own = stack.accelerator != "cpu", asked.gpu.compute_capability
        archs = building.archs or ((own,) if own else ())
        building = building.but(cuda=cuda, archs=archs if cuda else ())
    fallback: tuple[str, ...] = ()
    if torch.fallback is not None:  # with its index, where one has to be named
        plain = known.serves(torch.fallback, build)
        fallback = (f"torch=={torch.fallback}" + ("" if plain else f"+{build}"),)
        if not (plain or torch.index_url or torch.extra_index_url):
            fallback = (*fallback, "--extra-index-url", known.index_of(build))
    return torch.but(
        version=version,
        build=build,
        index_url=index,
        extra_index_url=extra,
        building=building,
        uv_version=stack.uv,
        local_version=local,
        fallback_from=fallback,
    )


def _smoke(asked: HostSpec) -> model.SmokeSpec:
    smoke, count = asked.smoke, asked.gpu.count
    mode: model.SmokeMode = "gpu" if count > 1 else "rehearsal-1gpu"
    if asked.accelerator == "cpu" or asked.rehearsal:
        mode = "rehearsal-cpu"
    return smoke.but(
        mode=mode,
        ranks={"gpu": count, "rehearsal-1gpu": 1, "rehearsal-cpu": smoke.ranks}[mode],
        allreduce_mib=smoke.allreduce_mib or LARGEST_MIB[mode],
        across=smoke.across if smoke.across and smoke.across.hosts else None,
    )


def _preflight(asked: HostSpec, stack: Stack) -> model.PreflightSpec:
    """The stack's, and what a tree and its objects take on a host that may build torch."""
    preflight, building = asked.preflight, asked.pytorch.building
    disk, memory = preflight.min_disk_gib, preflight.min_ram_gib
    if disk is None:
        builds = building and building.builder in (None, asked.host) and not asked.rehearsal
        disk = stack.minimum_disk_gib + (catalogue().build_disk_gib if builds else 0)
    return preflight.but(
        min_disk_gib=disk, min_ram_gib=stack.minimum_ram_gib if memory is None else memory
    )
