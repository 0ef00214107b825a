"""Rules about NVIDIA's package repositories: not each of them carries each driver and toolkit."""

from __future__ import annotations

from collections.abc import Callable

from pyinfra_gpu.compatibility.case import Case, Change, Problem
from pyinfra_gpu.compatibility.hardware import branch_changes, cuda_changes
from pyinfra_gpu.stacks import Repository


def branch_not_carried(case: Case) -> Problem | None:
    """A repository of a newer distribution begins with a newer branch."""
    carried, branch = case.repository, case.spec.driver.branch
    if carried is None or branch is None or carried.carries(branch) or not case.installs("driver"):
        return None
    return Problem(
        key="driver_branch",
        value=branch,
        found=f"is not in NVIDIA's repository for {carried.distro}",
        allowed=f"branch {_range(carried)} on {carried.distro}",
        changes=(*_changes(case), *branch_changes(case)),
        advice=_elsewhere(case, lambda other: other.carries(branch)),
    )


def branch_not_in_archive(case: Case) -> Problem | None:
    """A distribution's own archive has the branches of its day, and keeps to them.

    NVIDIA's repository is the way out where a GPU needs a newer one, as Blackwell does.
    """
    own, branch = case.archive, case.spec.driver.branch
    if own is None or branch is None or branch in own.branches or not case.moves_driver:
        return None
    name = f"the archive of {case.facts.distribution}" if case.facts else "its archive"
    return Problem(
        key="driver_source",
        value="distribution",
        found=f"offers branch {' and '.join(map(str, own.branches))} in {name}, and driver_branch ="
        f" {branch} is declared",
        allowed=f"a driver_branch that {name} carries",
        changes=(
            *((("driver_branch", each),) for each in reversed(own.branches)),
            *_stacks_of(case, own.branches),
            (("driver_source", "nvidia"),),
        ),
    )


def _stacks_of(case: Case, branches: tuple[int, ...]) -> tuple[Change, ...]:
    """Return the stacks of these branches, where the data takes its versions from one."""
    if not case.takes_its_stack:
        return ()
    return tuple(
        (("stack", stack.name),)
        for stack in case.known.stacks.values()
        if stack.driver is not None and stack.driver.branch in branches
    )


def toolkit_not_carried(case: Case) -> Problem | None:
    """The same of the CUDA toolkit; where the driver is missing too, that says it all."""
    carried, toolkit = case.repository, case.toolkit
    if carried is None or toolkit is None or not case.installs("toolkit"):
        return None
    if carried.carries_toolkit(toolkit.release) or branch_not_carried(case) is not None:
        return None
    return Problem(
        key="cuda_release",
        value=toolkit.release,
        found=f"is not in NVIDIA's repository for {carried.distro}",
        allowed=f"CUDA {carried.oldest_toolkit} or newer on {carried.distro}",
        changes=(*_changes(case), *cuda_changes(case), (("cuda_toolkit", False),)),
        advice=_elsewhere(case, lambda other: other.carries_toolkit(toolkit.release)),
    )


def _range(carried: Repository) -> str:
    oldest, newest = carried.branches
    return f"{oldest} or newer" if newest is None else f"{oldest} to {newest}"


def _changes(case: Case) -> tuple[Change, ...]:
    """Return the versions of every stack with GPUs: by its name where the data overrides none."""
    others = [
        stack
        for stack in case.known.stacks.values()
        if stack.driver is not None and stack.cuda is not None
    ]
    if case.takes_its_stack:
        return tuple((("stack", stack.name),) for stack in others if stack != case.stack)
    free = tuple(
        (key, None)
        for key, declared in (
            ("driver_version", case.spec.driver.version),
            ("cuda_version", case.spec.cuda.version),
        )
        if declared is not None
    )
    return tuple(
        (("driver_branch", stack.driver.branch), ("cuda_release", stack.cuda), *free)
        for stack in others
        if stack.driver is not None
    )


def _elsewhere(case: Case, has: Callable[[Repository], bool]) -> str | None:
    """Return what else helps where the release was read on the host, and others have it."""
    releases = case.known.repositories.releases
    others = [name for name, repository in releases.items() if has(repository)]
    if case.facts is None or not others:
        return None
    return f"install the host anew with one of {', '.join(others)}"
