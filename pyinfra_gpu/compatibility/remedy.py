"""Looking for the change of data that makes a combination work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pyinfra_gpu.compatibility.case import Case, Change, Problem
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import Catalogue

Check = Callable[[Case], Problem | None]


def remedy(case: Case, check: Check, problem: Problem, checks: tuple[Check, ...]) -> str:
    """Return what to change as text: "set KEY = VALUE ...", what to do on the host, or both."""
    good = best_change(case, check, problem, checks)
    if not good:
        return problem.advice or "no change of data helps: leave this host out of the inventory"
    text = "set " + " and ".join(f"{key} = {value!r}" for key, value in good)
    if problem.advice is None:
        return text
    return f"{text}, or {problem.advice}"


def best_change(case: Case, check: Check, problem: Problem, checks: tuple[Check, ...]) -> Change:
    """Return the first change after which all checks pass.

    Where there is none: the first that settles this problem without causing another. But where the
    host can be changed instead (`advice`), half a change of data is worse than none: then ().
    """
    before = {other for other in checks if other(case) is not None}
    partial: Change = ()
    for change in _candidates(case, problem):
        after = apply(case, change)
        if after is None or check(after) is not None:
            continue
        left = {other for other in checks if other(after) is not None}
        if not left:
            return change
        if left < before and problem.advice is None:
            partial = partial or change
    return partial


def _candidates(case: Case, problem: Problem) -> Iterator[Change]:
    """Yield the problem's own changes; then these with the other modules; then whole other
    stacks.
    """
    other = "proprietary" if case.spec.driver.modules == "open" else "open"
    flip: Change = (("driver_modules", other),) if case.nvidia else ()
    changes = [change for change in problem.changes if change]
    if case.loaded is not None:
        # Declaring another branch does not change what is loaded.
        changes = [change for change in changes if "driver_branch" not in dict(change)]
    yield from changes
    if flip:
        yield from ((*c, *flip) for c in changes if "driver_modules" not in dict(c))
    # A stack settles versions only where the data does not override them one by one.
    if case.takes_its_stack:
        for name, stack in case.known.stacks.items():
            if name != case.spec.stack and stack.accelerator == case.spec.accelerator:
                yield (("stack", name),)
                yield (("stack", name), *flip)


def apply(case: Case, change: Change) -> Case | None:
    """Return the case after a change of data, or None if the change changes nothing."""
    spec = case.spec
    for key, value in change:
        spec = _with(spec, case.known, key, value)
    capability = case.capability
    if not case.on_host and "gpu_model" in dict(change):
        capability = spec.gpu.compute_capability
    return None if spec == case.spec else replace(case, spec=spec, capability=capability)


def _with(spec: HostSpec, known: Catalogue, key: str, value: object) -> HostSpec:
    """Return the spec that data with one other value would resolve to."""
    after = _with_value(spec, known, key, value)
    if key != "cuda_archs" and spec.cuda.archs == _default_archs(spec, known):
        # Not declared, so they follow what they were derived from.
        return after.but(cuda=after.cuda.but(archs=_default_archs(after, known)))
    return after


def _default_archs(spec: HostSpec, known: Catalogue) -> tuple[int, ...]:
    if spec.cuda.release is None:
        return ()
    stack, capability = known.stacks[spec.stack], spec.gpu.compute_capability
    return known.default_archs(spec.cuda.release, capability, stack, spec.pytorch.build)


def _with_value(spec: HostSpec, known: Catalogue, key: str, value: object) -> HostSpec:
    if key == "stack":
        return _with_stack(spec, known, str(value))
    if key in ("pytorch_version", "pytorch_build"):
        name = key.removeprefix("pytorch_")
        return _with_torch(spec, known, **{name: str(value)})
    if key in ("driver_branch", "cuda_release"):
        return _with_driver(spec, known, key, value)
    if key == "cuda_archs":
        archs = _default_archs(spec, known)
        if isinstance(value, list):
            archs = tuple(int(capability.replace(".", "")) for capability in value)
        return spec.but(cuda=spec.cuda.but(archs=archs))
    if key == "pytorch_archs" and spec.pytorch.building and isinstance(value, list):
        building = spec.pytorch.building.but(archs=tuple(value))
        return spec.but(pytorch=spec.pytorch.but(building=building))
    if key == "gpu_model":
        model = None if value is None else known.gpus[str(value)]
        capability = None if model is None else model.compute_capability
        gpu = spec.gpu.but(model=model.name if model else None, compute_capability=capability)
        return spec.but(gpu=gpu)
    part, field = {
        "driver_modules": ("driver", "modules"),
        "driver_source": ("driver", "source"),
        "driver_version": ("driver", "version"),
        "cuda_version": ("cuda", "version"),
        "cuda_toolkit": ("cuda", "toolkit"),
        "host_compiler": ("cuda", "host_compiler"),
        "pytorch_python": ("pytorch", "python"),
        "pytorch_index_url": ("pytorch", "index_url"),
        "pytorch_extra_index_url": ("pytorch", "extra_index_url"),
        "gpu_count": ("gpu", "count"),
        "smoke": ("smoke", "run"),
    }[key]
    return spec.but(**{part: getattr(spec, part).but(**{field: value})})


def _with_stack(spec: HostSpec, known: Catalogue, name: str) -> HostSpec:
    stack = known.stacks[name]
    driver = spec.driver.but(
        branch=stack.driver.branch if stack.driver else None,
        minimum=stack.driver.minimum if stack.driver else None,
    )
    gpu = spec.gpu
    if stack.accelerator == "cpu":
        gpu = gpu.but(count=0, model=None, compute_capability=None)
    spec = spec.but(
        stack=name,
        accelerator=stack.accelerator,
        driver=driver,
        cuda=spec.cuda.but(release=stack.cuda),
        gpu=gpu,
    )
    return _with_torch(spec, known, version=stack.torch.version, build=stack.torch.build)


def _with_driver(spec: HostSpec, known: Catalogue, key: str, value: object) -> HostSpec:
    branch, cuda = spec.driver.branch, spec.cuda.release
    if key == "driver_branch":
        branch = int(str(value))
    else:
        cuda = str(value)
    if branch is None or cuda is None:
        return spec
    minimum = known.minimum_driver(known.stacks[spec.stack], branch, cuda)
    return spec.but(
        driver=spec.driver.but(branch=branch, minimum=minimum),
        cuda=spec.cuda.but(release=cuda),
    )


def _with_torch(
    spec: HostSpec, known: Catalogue, version: str | None = None, build: str | None = None
) -> HostSpec:
    """Return the spec with another torch; indexes the user chose stay, derived ones follow."""
    now, stack = spec.pytorch, known.stacks[spec.stack]
    version, build = version or now.version, build or now.build
    index, extra = now.index_url, now.extra_index_url
    if (index, extra) == known.indexes(stack, now.version, now.build):
        index, extra = known.indexes(stack, version, build)
    torch = now.but(
        version=version,
        build=build,
        index_url=index,
        extra_index_url=extra,
        local_version=not known.serves(version, build),
    )
    return spec.but(pytorch=torch)
