"""From a host's flat data to one frozen, checked HostSpec.

`resolve(host.data.dict(), host.name)` either returns a spec that can work or raises SpecError with
one sentence that names the host, the key, the value, what is allowed and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyinfra_gpu import compatibility
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec.key import FROM_STACK, Key
from pyinfra_gpu.spec.keys import KEYS
from pyinfra_gpu.spec.model import (
    Accelerator,
    AcrossSpec,
    CudaSpec,
    DriverSpec,
    EnvironmentSpec,
    GpuSpec,
    HostSpec,
    LibcudaSpec,
    Modules,
    Paths,
    PreflightSpec,
    Privilege,
    PytorchSpec,
    Reboot,
    RepositorySpec,
    SmokeMode,
    SmokeSpec,
    TrainingSpec,
)
from pyinfra_gpu.spec.nvidia_values import arch_number
from pyinfra_gpu.spec.unfit import commit_remedy, error, refuse_unfit
from pyinfra_gpu.spec.unknown import is_foreign, meant, nested_keys
from pyinfra_gpu.spec.values import BadValueError
from pyinfra_gpu.stacks import Catalogue, Stack, catalogue

__all__ = [
    "Accelerator",
    "AcrossSpec",
    "CudaSpec",
    "DriverSpec",
    "EnvironmentSpec",
    "GpuSpec",
    "HostSpec",
    "Key",
    "LibcudaSpec",
    "Modules",
    "Paths",
    "PreflightSpec",
    "Privilege",
    "PytorchSpec",
    "Reboot",
    "RepositorySpec",
    "SmokeMode",
    "SmokeSpec",
    "SpecError",
    "TrainingSpec",
    "allowed_keys",
    "check_data",
    "resolve",
]


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
            raise error(
                where, name, value, problem, "flat keys only", f"write {', '.join(flat)} instead"
            )
        if key is None:
            problem = "is a key that nothing reads"
            remedy = meant(name) if isinstance(name, str) else "remove it"
            raise error(where, name, value, problem, "the keys the README lists", remedy)
        try:
            values[name] = key.check(value)
        except BadValueError as bad:
            raise _wrong(key, value, bad, data, where) from None
    return values


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, if keys do not fit each other, or if the
    combination cannot work (see compatibility.py).
    """
    where = f"host {host}"
    values = check_data(data, where)
    known = catalogue()
    stack = known.stacks[values.get("stack", known.default_stack)]
    refuse_unfit(values, stack, where)
    gpu = _gpu(values, stack, known)
    spec = HostSpec(
        host=host,
        rehearsal=_given(values, "rehearsal"),
        privilege=_given(values, "privilege"),
        owner=_given(values, "owner"),
        stack=stack.name,
        accelerator=stack.accelerator,
        paths=Paths(prefix=_given(values, "prefix"), name=_given(values, "environment_name")),
        gpu=gpu,
        preflight=_preflight(values, stack),
        driver=_driver(values, stack, known),
        cuda=_cuda(values, stack, known),
        libcuda=LibcudaSpec(toolkit_link=_given(values, "libcuda_toolkit_link")),
        pytorch=_pytorch(values, stack, known),
        environment=_environment(values),
        training=_training(values),
        smoke=_smoke(values, stack, gpu.count),
    )
    compatibility.check_spec(spec)
    return spec


def _given(values: Mapping[str, Any], name: str, from_stack: Any = None) -> Any:
    """Return the value of a key, or its default; None takes the stack's value where it has one."""
    default = KEYS[name].default
    value = values.get(name)
    if value is not None:
        return value
    return from_stack if default is FROM_STACK else default


def _gpu(values: Mapping[str, Any], stack: Stack, known: Catalogue) -> GpuSpec:
    model = _given(values, "gpu_model")
    return GpuSpec(
        model=model,
        count=_given(values, "gpu_count", 0 if stack.accelerator == "cpu" else 2),
        compute_capability=None if model is None else known.gpus[model].compute_capability,
    )


def _preflight(values: Mapping[str, Any], stack: Stack) -> PreflightSpec:
    return PreflightSpec(
        min_disk_gib=_given(values, "preflight_min_disk_gib", stack.minimum_disk_gib),
        min_ram_gib=_given(values, "preflight_min_ram_gib", stack.minimum_ram_gib),
        apt_wait_s=_given(values, "preflight_apt_wait_s"),
    )


def _driver(values: Mapping[str, Any], stack: Stack, known: Catalogue) -> DriverSpec:
    branch, minimum, repository = None, None, None
    if stack.driver is not None and stack.cuda is not None:
        branch = _given(values, "driver_branch", stack.driver.branch)
        cuda = _given(values, "cuda_release", stack.cuda)
        minimum = known.minimum_driver(stack, branch, cuda)
        repository = RepositorySpec(
            url=_given(values, "driver_repository_url", known.default_repository_url),
            key_fingerprint=_given(values, "driver_key_fingerprint"),
            keyring_sha256=_given(values, "driver_keyring_sha256"),
        )
    return DriverSpec(
        source=_given(values, "driver_source") if _may_install(values, stack) else "present",
        branch=branch,
        version=_given(values, "driver_version"),
        modules=_given(values, "driver_modules"),
        packages=_given(values, "driver_packages"),
        minimum=minimum,
        repository=repository,
        hold=_given(values, "driver_hold"),
        persistence=_given(values, "driver_persistence"),
        reboot=_given(values, "driver_reboot"),
        reboot_wait_s=_given(values, "driver_reboot_wait_s"),
    )


def _cuda(values: Mapping[str, Any], stack: Stack, known: Catalogue) -> CudaSpec:
    release = _given(values, "cuda_release", stack.cuda)
    archs = tuple(arch_number(capability) for capability in values.get("cuda_archs") or ())
    if release is not None and not archs:
        gpu, build = _gpu(values, stack, known), _given(values, "pytorch_build", stack.torch.build)
        archs = known.default_archs(release, gpu.compute_capability, stack, build)
    return CudaSpec(
        toolkit=_given(values, "cuda_toolkit") and _may_install(values, stack),
        release=release,
        version=_given(values, "cuda_version"),
        host_compiler=_given(values, "host_compiler"),
        archs=archs,
    )


def _may_install(values: Mapping[str, Any], stack: Stack) -> bool:
    """Return whether packages of NVIDIA's may come onto the host at all."""
    return stack.accelerator == "nvidia" and _given(values, "privilege") == "sudo"


def _pytorch(values: Mapping[str, Any], stack: Stack, known: Catalogue) -> PytorchSpec:
    version = _given(values, "pytorch_version", stack.torch.version)
    build = _given(values, "pytorch_build", stack.torch.build)
    index, extra = known.indexes(stack, version, build)
    if values.get("pytorch_index_url") is not None:
        extra = None  # the index that was asked for, and no other unless that is asked for too
    return PytorchSpec(
        source=_given(values, "pytorch_source"),
        version=version,
        build=build,
        python=_given(values, "pytorch_python"),
        index_url=_given(values, "pytorch_index_url", index),
        extra_index_url=_given(values, "pytorch_extra_index_url", extra),
        uv_version=stack.uv,
        local_version=not known.serves(version, build),
    )


def _environment(values: Mapping[str, Any]) -> EnvironmentSpec:
    return EnvironmentSpec(
        name=_given(values, "environment_name"),
        variables=tuple(values.get("environment_variables", ())),
        dynamo=_given(values, "environment_dynamo"),
    )


def _training(values: Mapping[str, Any]) -> TrainingSpec | None:
    repo, commit = _given(values, "training_repo"), _given(values, "training_commit")
    if repo is None or commit is None:
        return None
    return TrainingSpec(
        repo=repo,
        commit=commit,
        local_changes=_given(values, "training_local_changes"),
        requirements=_given(values, "training_requirements"),
    )


def _smoke(values: Mapping[str, Any], stack: Stack, gpus: int) -> SmokeSpec:
    mode: SmokeMode = "rehearsal-cpu"
    if stack.accelerator == "nvidia" and not _given(values, "rehearsal"):
        mode = "gpu" if gpus > 1 else "rehearsal-1gpu"
    ranks = {"gpu": max(gpus, _given(values, "smoke_ranks")), "rehearsal-1gpu": 2}
    return SmokeSpec(
        run=_given(values, "smoke"),
        mode=mode,
        ranks=ranks.get(mode, _given(values, "smoke_ranks")),
        deadline_s=_given(values, "smoke_deadline_s"),
        allreduce_mib=_given(values, "smoke_allreduce_mib"),
        accept=_given(values, "smoke_accept"),
        across=_across(values),
    )


def _across(values: Mapping[str, Any]) -> AcrossSpec | None:
    hosts = _given(values, "smoke_across_hosts")
    if hosts is False:
        return None
    return AcrossSpec(
        hosts=hosts,
        address=_given(values, "smoke_across_address"),
        port=_given(values, "smoke_across_port"),
    )


def _wrong(
    key: Key, value: object, bad: BadValueError, data: Mapping[str, object], where: str
) -> SpecError:
    """Return the error for a value its key refused."""
    remedy = bad.remedy and bad.remedy.replace("KEY", key.name)
    if remedy is None and bad.suggestion is not None:
        remedy = f"set {key.name} = {bad.suggestion!r}"
    elif remedy is None and key.name == "training_commit":
        remedy = commit_remedy(data.get("training_repo"))
    elif remedy is None:
        remedy = f"set e.g. {key.name} = {key.example!r}, or remove it for {key.default_text}"
    return error(where, key.name, value, bad.problem, bad.allowed or key.type_text, remedy)
