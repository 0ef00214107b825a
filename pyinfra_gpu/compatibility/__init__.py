"""Refuses combinations of versions and hardware that cannot work, and says what to change.

A deploy begins with `resolve(host.data.dict(), host.name)`: the host's spec, or one sentence.

`check_spec` judges by data alone, before any host is contacted; `check_host` by what a look at the
host shows. Both use the same RULES, so a GPU that was not declared is judged like one that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyinfra_gpu import spec as declared
from pyinfra_gpu.compatibility import hardware, repository, software, versions
from pyinfra_gpu.compatibility.case import Case, Due, HostFacts, Problem
from pyinfra_gpu.compatibility.remedy import Check, remedy
from pyinfra_gpu.errors import SpecError, sentence, shown
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import one_line

__all__ = [
    "RULES",
    "Due",
    "HostFacts",
    "Refusal",
    "Rule",
    "check_host",
    "check_spec",
    "refusals",
    "resolve",
]


class Refusal(str):
    """The sentence of a refusal, and its parts: what was found, what is allowed, the remedy."""

    found: str
    allowed: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the id tests and reports know it by, and its check."""

    id: str
    check: Check


# In the order in which a person should learn of the problems: what is declared at all, then whether
# torch exists in that form, then driver, modules, toolkit, GPU code, compiler.
RULES: tuple[Rule, ...] = (
    Rule("cpu-stack-with-gpus", software.cpu_stack_with_gpus),
    Rule("nvidia-stack-without-gpus", software.nvidia_stack_without_gpus),
    Rule("gpu-model-mismatch", hardware.gpu_model_mismatch),
    Rule("cpu-build-on-nvidia-stack", software.cpu_build_on_nvidia_stack),
    Rule("cuda-build-on-cpu-stack", software.cuda_build_on_cpu_stack),
    Rule("torch-release-unknown", software.torch_release_unknown),
    Rule("build-not-published", software.build_not_published),
    Rule("machine-without-wheel", software.machine_without_wheel),
    Rule("index-for-other-build", software.index_for_other_build),
    Rule("package-index-serves-other-build", software.package_index_serves_other_build),
    Rule("python-below-torch-minimum", software.python_below_torch_minimum),
    Rule("python-above-torch-maximum", software.python_above_torch_maximum),
    Rule("c-library-too-old", software.c_library_too_old),
    Rule("driver-version-of-other-branch", versions.driver_version_of_other_branch),
    Rule("cuda-version-of-other-release", versions.cuda_version_of_other_release),
    Rule("driver-older-than-gpu", hardware.driver_older_than_gpu),
    Rule("driver-dropped-gpu", hardware.driver_dropped_gpu),
    Rule("driver-below-cuda-minimum", hardware.driver_below_cuda_minimum),
    Rule("driver-version-too-old", versions.driver_version_too_old),
    Rule("driver-below-wheel-minimum", hardware.driver_below_wheel_minimum),
    Rule("branch-not-carried", repository.branch_not_carried),
    Rule("branch-not-in-archive", repository.branch_not_in_archive),
    Rule("proprietary-modules-gone", hardware.proprietary_modules_gone),
    Rule("open-modules-required", hardware.open_modules_required),
    Rule("open-modules-unsupported", hardware.open_modules_unsupported),
    Rule("cuda-dropped-gpu", hardware.cuda_dropped_gpu),
    Rule("cuda-older-than-gpu", hardware.cuda_older_than_gpu),
    Rule("cuda-cannot-make-code", versions.cuda_cannot_make_code),
    Rule("build-of-other-cuda", versions.build_of_other_cuda),
    Rule("build-cannot-make-code", versions.build_cannot_make_code),
    Rule("build-without-gpu-code", versions.build_without_gpu_code),
    Rule("toolkit-not-carried", repository.toolkit_not_carried),
    Rule("nccl-too-old", hardware.nccl_too_old),
    Rule("wheel-without-gpu-code", hardware.wheel_without_gpu_code),
    Rule("build-newer-than-driver", hardware.build_newer_than_driver),
    Rule("compiler-too-new", software.compiler_too_new),
    Rule("compiler-too-old", software.compiler_too_old),
)

OF_WHEELS = frozenset(
    {
        "torch-release-unknown",
        "build-not-published",
        "machine-without-wheel",
        "index-for-other-build",
        "package-index-serves-other-build",
        "c-library-too-old",
        "driver-below-wheel-minimum",
        "nccl-too-old",
        "wheel-without-gpu-code",
    }
)
"""Rules about published releases: none is installed where torch is a nightly, or built."""


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, if keys do not fit each other, or if the
    combination cannot work: always one sentence that says what to change.
    """
    spec = declared.resolve(data, host)
    check_spec(spec)
    return spec


def check_spec(spec: HostSpec) -> None:
    """Raise SpecError with the first reason why the data alone shows that this cannot work."""
    for _, refusal in refusals(spec):
        raise SpecError(refusal)


def check_host(spec: HostSpec, facts: HostFacts) -> list[Refusal]:
    """Return one sentence per reason why this host cannot be what `spec` says; [] if it can.

    Leave `driver_loaded`, `open_modules` and `compute_capabilities` empty in `facts` while the
    driver stage is still to install another driver: what is loaded now then says nothing about the
    result.
    """
    return list(dict.fromkeys(refusal for _, refusal in refusals(spec, facts)))


def refusals(spec: HostSpec, facts: HostFacts | None = None) -> Iterator[tuple[str, Refusal]]:
    """Yield (rule id, sentence) for every rule that refuses `spec`, on a host if `facts` is
    given.
    """
    released = spec.pytorch.source == "wheel"
    rules = [rule for rule in RULES if released or rule.id not in OF_WHEELS]
    checks = tuple(rule.check for rule in rules)
    cases = _cases(spec, facts)
    for rule in rules:
        for case in cases:
            problem = rule.check(case)
            if problem is not None:
                yield rule.id, _sentence(case, rule, problem, checks)


def _cases(spec: HostSpec, facts: HostFacts | None) -> list[Case]:
    """Return one case per kind of GPU: those a look found on the host, else the declared one."""
    known = catalogue()
    if facts is None or not facts.compute_capabilities:
        return [Case(spec=spec, known=known, facts=facts, capability=spec.gpu.compute_capability)]
    return [
        Case(spec=spec, known=known, facts=facts, capability=capability, on_host=True)
        for capability in dict.fromkeys(facts.compute_capabilities)
    ]


def _sentence(case: Case, rule: Rule, problem: Problem, checks: tuple[Check, ...]) -> Refusal:
    way_out = remedy(case, rule.check, problem, checks)
    refusal = Refusal(
        sentence(
            f"host {case.spec.host}",
            problem.key,
            problem.value,
            problem.found,
            allowed=problem.allowed,
            remedy=way_out,
        )
    )
    refusal.found = one_line(f"{problem.key} = {shown(problem.key, problem.value)} {problem.found}")
    refusal.allowed, refusal.remedy = one_line(problem.allowed), one_line(way_out)
    return refusal
