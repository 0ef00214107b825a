"""Rules about GPUs: driver, kernel modules, CUDA toolkit, and the GPU code inside torch's
wheels.
"""

from __future__ import annotations

from packaging.version import Version

from pyinfra_gpu.compatibility.case import (
    BLACKWELL,
    TURING,
    Case,
    Change,
    Problem,
    cuda_of,
    has_binary,
    has_ptx,
)
from pyinfra_gpu.compatibility.software import torch_changes


def branch_changes(case: Case) -> tuple[Change, ...]:
    """Return every driver branch that could be asked for instead: the stacks' own first, then
    newest first. A declared version of another branch is taken back with it.
    """
    own = [stack.driver.branch for stack in case.known.stacks.values() if stack.driver]
    branches = dict.fromkeys((*own, *sorted(case.known.driver_branches, reverse=True)))
    version = case.spec.driver.version
    if version is None:
        return tuple((("driver_branch", branch),) for branch in branches)
    free: Change = (("driver_version", None),)
    return tuple(
        (("driver_branch", branch), *(() if Version(version).major == branch else free))
        for branch in branches
    )


def cuda_changes(case: Case) -> tuple[Change, ...]:
    """Return every CUDA release that could be asked for instead: the stacks' own first, then newest
    first. A declared toolkit version is taken back with it.
    """
    own = [stack.cuda for stack in case.known.stacks.values() if stack.cuda]
    releases = dict.fromkeys((*own, *sorted(case.known.cuda, key=Version, reverse=True)))
    free: Change = () if case.spec.cuda.version is None else (("cuda_version", None),)
    return tuple((("cuda_release", release), *free) for release in releases)


def _driver_advice(case: Case) -> str | None:
    if case.loaded is None:
        return None
    declared = case.spec.driver
    wanted = declared.version or f"branch {declared.branch}, {declared.minimum} or newer,"
    return f"install driver {wanted} on the host and reboot it"


def _driver_found(case: Case, finding: str) -> str:
    """Return what is wrong with driver_branch, or with the loaded driver in its place."""
    if case.loaded is None:
        return finding
    return f"is declared, but the loaded driver {case.loaded} {finding}"


def gpu_model_mismatch(case: Case) -> Problem | None:
    """The host's GPU is not the declared one."""
    gpu = case.gpu
    if gpu is None or not case.on_host or case.capability == gpu.compute_capability:
        return None
    mixed = case.facts is not None and len(set(case.facts.compute_capabilities)) > 1
    models = [m.name for m in case.known.gpus.values() if m.compute_capability == case.capability]
    return Problem(
        key="gpu_model",
        value=gpu.name,
        found=f"is declared, which has compute capability {gpu.compute_capability}, "
        f"but the host has a GPU of {case.capability}",
        allowed=", ".join(models) or "a model with that compute capability, or None",
        changes=((("gpu_model", None if mixed or not models else models[0]),),),
        advice="take the other GPUs out" if mixed else "set it to the model that is in the host",
    )


def driver_below_cuda_minimum(case: Case) -> Problem | None:
    """Below its minimum a CUDA release does not start at all."""
    minimum = case.spec.driver.minimum
    if minimum is None or case.cuda is None:
        return None
    if case.loaded is None:
        minimum = case.cuda.minimum_driver
    if not case.driver_is_below(minimum):
        return None
    return Problem(
        key="driver_branch",
        value=case.spec.driver.branch,
        found=_driver_found(case, f"is too old for CUDA {case.cuda.release}"),
        allowed=f"driver {minimum} or newer with CUDA {case.cuda.release}",
        changes=(*branch_changes(case), *cuda_changes(case)),
        advice=_driver_advice(case),
    )


def driver_below_wheel_minimum(case: Case) -> Problem | None:
    """torch brings its own CUDA libraries, and these have a minimum driver too."""
    build = cuda_of(case.spec.pytorch.build)
    if build is None or not case.nvidia:
        return None
    major = build.partition(".")[0]
    minimums = [
        release.minimum_driver
        for name, release in case.known.cuda.items()
        if name.partition(".")[0] == major
    ]
    if not minimums or not case.driver_is_below(minimums[0]):
        return None
    # A branch that is only declared is easier to change than a torch that was chosen; a loaded
    # driver is not.
    torch, branch = torch_changes(case), branch_changes(case)
    return Problem(
        key="pytorch_build",
        value=case.spec.pytorch.build,
        found=f"brings CUDA {build}, which does not start on {case.driver_name}",
        allowed=f"driver {minimums[0]} or newer with CUDA {major}.x builds",
        changes=(*branch, *torch) if case.loaded is None else (*torch, *branch),
        advice=_driver_advice(case),
    )


def driver_older_than_gpu(case: Case) -> Problem | None:
    """A driver does not know GPUs that came after it."""
    branch = case.branch
    if not case.nvidia or case.capability is None or branch is None or branch.newest is None:
        return None
    if Version(case.capability).major <= Version(branch.newest).major:
        return None
    good = [
        b.branch
        for b in case.known.driver_branches.values()
        if b.newest is None or Version(b.newest).major >= Version(case.capability).major
    ]
    return Problem(
        key="driver_branch",
        value=case.spec.driver.branch,
        found=_driver_found(case, f"does not know {case.gpu_name}"),
        allowed=f"branch {min(good, default=0)} or newer for this GPU",
        changes=branch_changes(case),
        advice=_driver_advice(case),
    )


def driver_dropped_gpu(case: Case) -> Problem | None:
    """Newer branches serve Turing and newer only."""
    branch = case.branch
    if not case.nvidia or case.capability is None or branch is None:
        return None
    if Version(case.capability) >= Version(branch.oldest):
        return None
    good = [
        b.branch
        for b in case.known.driver_branches.values()
        if Version(b.oldest) <= Version(case.capability)
    ]
    return Problem(
        key="driver_branch",
        value=case.spec.driver.branch,
        found=_driver_found(case, f"no longer serves {case.gpu_name}"),
        allowed=f"branch {max(good, default=0)} or older for this GPU",
        changes=branch_changes(case),
        advice=_driver_advice(case),
    )


def proprietary_modules_gone(case: Case) -> Problem | None:
    """From branch 615 on there are open kernel modules only."""
    branch, modules = case.branch, case.spec.driver.modules
    if not case.nvidia or branch is None or modules in branch.modules:
        return None
    return Problem(
        key="driver_modules",
        value=modules,
        found=f"does not exist with {case.driver_name}",
        allowed=f"{' or '.join(repr(flavour) for flavour in branch.modules)} from branch "
        f"{branch.branch} on",
        changes=((("driver_modules", "open"),), *branch_changes(case)),
    )


def open_modules_required(case: Case) -> Problem | None:
    """The proprietary modules do not bring up Blackwell and Grace machines: "No devices were
    found".
    """
    newest = case.capability is not None and Version(case.capability) >= BLACKWELL
    declared = case.gpu is not None and case.gpu.open_modules == "required"
    if not case.nvidia or not (newest or (declared and not gpu_model_mismatch(case))):
        return None
    loaded_closed = case.facts is not None and case.facts.open_modules is False
    if case.spec.driver.modules == "open" and not loaded_closed:
        return None
    problem = f"does not bring up {case.gpu_name}"
    if case.spec.driver.modules == "open":
        problem = (
            "is declared, but the proprietary modules are loaded, and these do not bring up "
            f"{case.gpu_name}"
        )
    return Problem(
        key="driver_modules",
        value=case.spec.driver.modules,
        found=problem,
        allowed="'open' for Blackwell and Grace",
        changes=((("driver_modules", "open"),),),
        advice=(
            f"install the open modules of branch {case.spec.driver.branch} and reboot the host"
            if loaded_closed
            else None
        ),
    )


def open_modules_unsupported(case: Case) -> Problem | None:
    """The open modules need the GPU System Processor, which came with Turing."""
    if not case.nvidia or case.capability is None or case.spec.driver.modules != "open":
        return None
    if Version(case.capability) >= TURING:
        return None
    return Problem(
        key="driver_modules",
        value="open",
        found=f"does not bring up {case.gpu_name}, which is older than Turing",
        allowed="'proprietary' for GPUs older than Turing",
        changes=((("driver_modules", "proprietary"),),),
    )


def cuda_dropped_gpu(case: Case) -> Problem | None:
    """CUDA 13 no longer makes code for Maxwell, Pascal and Volta."""
    if case.toolkit is None or case.capability is None:
        return None
    oldest = _capability(min(case.toolkit.archs))
    if Version(case.capability) >= oldest:
        return None
    return Problem(
        key="cuda_release",
        value=case.toolkit.release,
        found=f"no longer makes code for {case.gpu_name}",
        allowed=f"compute capability {oldest} or newer with CUDA {case.toolkit.release}",
        changes=cuda_changes(case),
    )


def cuda_older_than_gpu(case: Case) -> Problem | None:
    """A toolkit does not make code for GPUs that came after it."""
    if case.toolkit is None or case.capability is None:
        return None
    newest = _capability(max(case.toolkit.archs))
    if Version(case.capability).major <= newest.major:
        return None
    return Problem(
        key="cuda_release",
        value=case.toolkit.release,
        found=f"does not yet make code for {case.gpu_name}",
        allowed=f"compute capability {newest} or older with CUDA {case.toolkit.release}",
        changes=cuda_changes(case),
    )


def nccl_too_old(case: Case) -> Problem | None:
    """An NCCL older than the GPU fails in the first all-reduce, after everything else worked."""
    if not case.nvidia or case.capability is None or case.release is None:
        return None
    build = case.release.builds.get(case.spec.pytorch.build)
    minimum = case.known.nccl_minimum.get(str(Version(case.capability).major))
    if build is None or build.nccl is None or minimum is None:
        return None
    if Version(build.nccl) >= Version(minimum):
        return None
    return Problem(
        key="pytorch_version",
        value=case.release.version,
        found=f"brings NCCL {build.nccl}, whose all-reduce fails on {case.gpu_name}",
        allowed=f"a torch with NCCL {minimum} or newer for this GPU",
        changes=torch_changes(case),
    )


def wheel_without_gpu_code(case: Case) -> Problem | None:
    """Without code for the GPU every kernel launch fails: "no kernel image is available"."""
    wheels, capability = case.wheels(), case.capability
    if not case.nvidia or capability is None or not wheels or case.spec.pytorch.build == "cpu":
        return None
    if any(has_binary(wheel, capability) or has_ptx(wheel, capability) for wheel in wheels):
        return None
    archs = sorted({arch for wheel in wheels for arch in wheel.archs})
    where = f" on {case.machine}" if case.machine else ""
    return Problem(
        key="pytorch_build",
        value=case.spec.pytorch.build,
        found=f"has no code for {case.gpu_name}{where}",
        allowed=f"compute capabilities {', '.join(str(_capability(a)) for a in archs)} with it",
        changes=torch_changes(case),
    )


def build_newer_than_driver(case: Case) -> Problem | None:
    """Within one CUDA major an older driver runs a newer toolkit's finished code, and no PTX of it.

    It ends with CUDA_ERROR_UNSUPPORTED_PTX_VERSION, so a wheel without finished code for the GPU
    cannot work there. From `strict_cuda` on a newer build is refused at all: see stacks.yaml. What
    torch.compile makes is no matter: Triton's own assembler writes finished code.
    """
    build, branch = cuda_of(case.spec.pytorch.build), case.branch
    if not case.nvidia or build is None or branch is None or branch.cuda is None:
        return None
    ours, theirs = Version(build), Version(branch.cuda)
    if ours <= theirs or ours.major != theirs.major:
        return None
    strict = ours >= Version(case.known.strict_cuda)
    known = case.capability is not None and bool(case.wheels())
    finished = known and any(has_binary(w, str(case.capability)) for w in case.wheels())
    if not strict and (finished or not known):
        return None
    nccl = ", and NCCL of such a build did not start" if strict else ""
    return Problem(
        key="pytorch_build",
        value=case.spec.pytorch.build,
        found=f"is of CUDA {build}, newer than {case.driver_name} translates code of "
        f"(CUDA {branch.cuda}){nccl}",
        allowed=f"builds up to CUDA {branch.cuda} with {case.driver_name}",
        changes=(*torch_changes(case), *branch_changes(case)),
        advice=_driver_advice(case),
    )


def _capability(arch: int) -> Version:
    return Version(f"{arch // 10}.{arch % 10}")
