"""From a host's flat data to one frozen, checked HostSpec, or to one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pyinfra_gpu.errors import HOLD_SECRETS, Outline, SpecError, nearest, sentence
from pyinfra_gpu.on_host.smoke.options import LARGEST_MIB
from pyinfra_gpu.spec.model import (
    KEYS,
    STAGES,
    BuildSpec,
    CudaSpec,
    DriverSpec,
    HostSpec,
    Key,
    LibcudaSpec,
    PreflightSpec,
    PytorchSpec,
    SmokeMode,
    SmokeSpec,
)
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.types import Bad, kind
from pyinfra_gpu.spec.unfit import problems
from pyinfra_gpu.stacks import Stack, catalogue

# pyinfra's own data and its connectors' (arguments, and settings of how to reach the host).
_FOREIGN = ("_", "ssh_", "local_", "fake_", "docker_", "chroot_", "vagrant_", "terraform_")
_PYINFRAS = {"user": "ssh_user", "host": "ssh_hostname", "ssh_host": "ssh_hostname"}
"""What is written for keys of pyinfra's, which are not known here."""
_PLACES = {key.place: key for key in KEYS.values()}


def allowed_keys() -> dict[str, Key]:
    """Return every data key of ours by name, in the order of the documentation."""
    return dict(KEYS)


def check_data(data: Mapping[str, object], where: str) -> dict[str, Any]:
    """Check the keys of one layer of data by themselves; the layer need not be complete.

    `where` names the layer in errors, e.g. "group_data/gpu.py". Returns the accepted values in
    their final form; pyinfra's own keys are left out. Raises SpecError at the first mistake.
    """
    asked = _asked(data, where)
    return {name: _at(asked, KEYS[name]) for name in data if name in KEYS}


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, or if keys do not fit each other. Whether the
    versions work together is `pyinfra_gpu.compatibility`'s to judge: its `resolve` does both.
    """
    where = f"host {host}"
    asked = _asked(data, where)
    spec = _settled(asked, host)
    declared = {name for name, value in data.items() if value is not None and name in KEYS}
    for key, problem, allowed, remedy in problems(asked, spec, declared):
        value = data.get(key, KEYS[key].default)
        raise SpecError(sentence(where, key, value, problem, allowed=allowed, remedy=remedy))
    return spec


def _asked(data: Mapping[str, object], where: str) -> HostSpec:
    """Return what data declares, each value checked; what is derived is not there yet."""
    nested: dict[str, Any] = {}
    for name, value in data.items():
        key = KEYS.get(name)
        if key is None:
            if not _is_foreign(name, value):
                raise _unknown(where, name, value)
        elif value is not None or not (key.derived or key.default is None):
            part = nested
            for step in key.place[:-1]:
                part = part.setdefault(step, {})
            part[key.place[-1]] = value
    try:
        return HostSpec.model_validate(nested)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        wrong = next(_PLACES[place] for place in _beginnings(first["loc"]) if place in _PLACES)
        raise _wrong(wrong, data[wrong.name], first, where) from None


def _beginnings(loc: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [loc[:end] for end in range(1, len(loc) + 1)]


def _wrong(key: Key, value: object, error: Any, where: str) -> SpecError:
    """Return the error for a value that its key refused: pydantic's reason in our words."""
    bad = error.get("ctx", {}).get("error")
    if not isinstance(bad, Bad):
        bad = _in_words(error["type"], error.get("ctx", {}), value)
    remedy = bad.remedy and bad.remedy.replace("KEY", key.name)
    if remedy is None and bad.suggestion is not None:
        remedy = f"set {key.name} = {bad.suggestion!r}"
    if remedy is None and key.place[-1] == "commit":
        remedy = f"set {key.name} to what `git ls-remote URL main` prints"
    example = f"set e.g. {key.name} = {key.example!r}, or remove it for {key.default_text}"
    return SpecError(
        sentence(
            where, key.name, value, bad.problem, allowed=bad.allowed or key.type_text,
            remedy=remedy or example,
        )
    )  # fmt: skip


def _in_words(reason: str, about: Mapping[str, Any], value: object) -> Bad:
    """Return pydantic's reason in words for somebody who never saw Python's type names."""
    word = str(value).casefold() if isinstance(value, str | int) else ""
    if reason == "bool_type":
        meant = dict.fromkeys(("1", "yes", "true", "on"), True)
        meant |= dict.fromkeys(("0", "no", "false", "off"), False)
        return Bad(f"is {kind(value)}, not True or False", suggestion=meant.get(word))
    if reason == "literal_error":
        if not isinstance(value, str):
            return Bad(f"is {kind(value)}, not text")
        words = about["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return Bad("is not one of the allowed words", suggestion=nearest(value, words))
    if reason == "string_pattern_mismatch":
        return Bad("has another form than is allowed")
    if reason in ("greater_than_equal", "less_than_equal") and value == value:
        bound = about["ge"] if reason == "greater_than_equal" else about["le"]
        problem = "is too small" if reason == "greater_than_equal" else "is too large"
        return Bad(problem, suggestion=None if isinstance(bound, float) else bound)
    if reason == "int_type":
        whole = word.isdecimal() and isinstance(value, str)
        meant_int = int(word) if whole else None
        if isinstance(value, float) and value.is_integer():
            meant_int = int(value)
        return Bad(f"is {kind(value)}, not a whole number", suggestion=meant_int)
    return Bad(f"is {kind(value)}, not a number")


def _is_foreign(name: object, value: object) -> bool:
    """Return whether a key is pyinfra's own, or a function or module of a group_data file."""
    if not isinstance(name, str) or name in _PYINFRAS:
        return False
    return name.startswith(_FOREIGN) or callable(value) or type(value).__name__ == "module"


def _unknown(where: str, name: object, value: object) -> SpecError:
    """Return the error for a key that nothing reads, with the one that was probably meant.

    Nobody has said what is in it: of what has parts, and of what may have been meant for a key
    that holds secrets, the names are shown alone.
    """
    plain = str(name).casefold().replace("-", "_")
    ends = [each for each in KEYS if each.endswith(f"_{plain.partition('_')[2] or plain}")]
    close = ends[0] if len(ends) == 1 else nearest(plain, KEYS)
    meant = _PYINFRAS.get(plain, close)
    remedy = f"write {meant}" if meant else "remove it"
    if plain in STAGES or isinstance(value, Mapping):
        flat = f"{plain}_..." if plain in STAGES else "training_repo"
        remedy = f"write flat keys such as {flat}, as docs/keys.md lists them"
    parts = isinstance(value, Mapping | list | tuple | set | frozenset)
    if parts or close in HOLD_SECRETS or plain.startswith("env"):
        value = Outline(value)
    problem, allowed = "is a key that nothing reads", "the keys that docs/keys.md lists"
    return SpecError(sentence(where, name, value, problem, allowed=allowed, remedy=remedy))


def _at(spec: HostSpec, key: Key) -> Any:
    value: Any = spec
    for step in key.place:
        value = getattr(value, step)
    return value


def _settled(asked: HostSpec, host: str) -> HostSpec:
    """Return the spec with everything that follows from the stack and from other keys."""
    stack = catalogue().stacks[asked.stack]
    gpu = asked.gpu
    if gpu.model is not None:
        capability = catalogue().gpus[gpu.model].compute_capability
        gpu = gpu.but(compute_capability=capability)
    if gpu.count is None:
        gpu = gpu.but(count=0 if stack.accelerator == "cpu" else 2)
    asked = asked.but(
        host=host,
        gpu=gpu,
        accelerator=stack.accelerator,
        paths=Paths(prefix=asked.prefix, name=asked.environment.name),
        training=asked.training if asked.training and asked.training.repo else None,
    )
    if asked.training and not asked.training.commit:
        asked = asked.but(training=None)
    if stack.accelerator == "cpu":
        parts = {"driver": DriverSpec, "cuda": CudaSpec, "libcuda": LibcudaSpec}
        own = [key for key in KEYS.values() if key.place[0] in parts]
        said = tuple(key.name for key in own if _at(asked, key) != _at(HostSpec(), key))
        none = DriverSpec(source="present").but(repository=None)
        asked = asked.but(driver=none, cuda=CudaSpec(toolkit=False), ignored=said)
        asked = asked.but(libcuda=LibcudaSpec())
    pytorch = _pytorch(asked, stack)
    if stack.accelerator == "nvidia":
        asked = asked.but(driver=_driver(asked, stack), cuda=_cuda(asked, stack, pytorch.build))
    asked = asked.but(pytorch=pytorch, smoke=_smoke(asked))
    return asked.but(preflight=_preflight(asked, stack))


def _driver(asked: HostSpec, stack: Stack) -> DriverSpec:
    driver, known = asked.driver, catalogue()
    branch = driver.branch or (stack.driver.branch if stack.driver else None)
    release, repository = asked.cuda.release or stack.cuda, driver.repository
    minimum = known.minimum_driver(stack, branch, release) if branch and release else None
    if stack.driver is None:
        repository = None
    elif repository and repository.url is None:
        repository = repository.but(url=known.default_repository_url)
    source = driver.source if asked.privilege == "sudo" else "present"
    return driver.but(branch=branch, minimum=minimum, repository=repository, source=source)


def _cuda(asked: HostSpec, stack: Stack, build: str) -> CudaSpec:
    cuda, archs = asked.cuda, asked.cuda.archs
    release = cuda.release or stack.cuda
    if not archs and release is not None:
        capability = asked.gpu.compute_capability
        archs = catalogue().default_archs(release, capability, stack, build)
    toolkit = cuda.toolkit and asked.privilege == "sudo"
    return cuda.but(release=release, archs=archs, toolkit=toolkit)


def _pytorch(asked: HostSpec, stack: Stack) -> PytorchSpec:
    torch, known = asked.pytorch, catalogue()
    version, build = torch.version or stack.torch.version, torch.build or stack.torch.build
    index, extra = known.indexes(stack, version, build)
    if torch.nightly:
        index, extra = known.nightly_index_of(build), None
    if torch.index_url is not None:  # beside an index that data names no other is asked
        extra = None
    building: BuildSpec | None = None
    if torch.source == "source" and torch.building:
        cuda, own = stack.accelerator != "cpu", asked.gpu.compute_capability
        archs = torch.building.archs or ((own,) if own else ())
        building = torch.building.but(cuda=cuda, archs=archs if cuda else ())
    return torch.but(
        version=version,
        build=build,
        index_url=torch.index_url or index,
        extra_index_url=torch.extra_index_url or extra,
        building=building,
        uv_version=stack.uv,
        local_version=not known.serves(version, build),
        fallback_from=_fallback(torch, build),
    )


def _fallback(torch: PytorchSpec, build: str) -> tuple[str, ...]:
    """Return what the fallback is asked for by, with its index where one has to be named."""
    known, version = catalogue(), torch.fallback
    if version is None:
        return ()
    if known.serves(version, build):
        return (f"torch=={version}",)
    if torch.index_url or torch.extra_index_url:
        return (f"torch=={version}+{build}",)
    return (f"torch=={version}+{build}", "--extra-index-url", known.index_of(build))


def _smoke(asked: HostSpec) -> SmokeSpec:
    smoke, count = asked.smoke, asked.gpu.count
    mode: SmokeMode = "gpu" if count > 1 else "rehearsal-1gpu"
    if asked.accelerator == "cpu" or asked.rehearsal:
        mode = "rehearsal-cpu"
    across = smoke.across if smoke.across and smoke.across.hosts else None
    return smoke.but(
        mode=mode,
        ranks={"gpu": count, "rehearsal-1gpu": 1, "rehearsal-cpu": smoke.ranks}[mode],
        allreduce_mib=smoke.allreduce_mib or LARGEST_MIB[mode],
        across=across,
    )


def _preflight(asked: HostSpec, stack: Stack) -> PreflightSpec:
    """The stack's, and what a tree and its objects take on a host that may build torch."""
    preflight, building = asked.preflight, asked.pytorch.building
    disk, memory = preflight.min_disk_gib, preflight.min_ram_gib
    if disk is None:
        builds = building and building.builder in (None, asked.host) and not asked.rehearsal
        disk = stack.minimum_disk_gib + (catalogue().build_disk_gib if builds else 0)
    if memory is None:
        memory = stack.minimum_ram_gib
    return preflight.but(min_disk_gib=disk, min_ram_gib=memory)
