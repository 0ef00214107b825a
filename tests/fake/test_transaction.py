"""A transaction of packages in a run: simulated, judged, fetched, run; refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from gpu_host import URL, GpuHost, GpuRun
from pyinfra.api import deploy, operation
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.engine import transaction
from pyinfra_gpu.engine.converge import Commands
from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.spec import HostSpec

V = "580.95.05-1"
GOOD = f"Inst libcuda1 ({V} NVIDIA CUDA:x [amd64])"
Body = Callable[[HostSpec], Commands]


def executed(host: GpuHost, body: Body) -> tuple[list[str], str]:
    """Run one operation on a host: its commands, and why it failed."""

    @operation()
    def act(spec: HostSpec) -> Commands:
        assert look(spec) is not None
        yield from body(spec)

    @deploy("Packages")
    def task(wanted: HostSpec) -> None:
        if wanted.host.endswith("ws1"):
            act(name="Act", spec=wanted)

    made = GpuRun(host, GpuHost(name="ws2"), tasks=(task,))
    journal = Journal(lambda state, journal: None)
    made.state.add_callback_handler(journal)  # type: ignore[no-untyped-call]
    made.prepare().execute()
    problems = [each.problem or "" for name in journal.entries for each in journal.of(name)]
    return made.executed("ws1"), "".join(problems)


def installs(spec: HostSpec) -> Commands:
    wanted = ["libcuda1=580.95.05-*"]
    yield FunctionCommand(transaction.install, ("driver", spec, wanted), {})


def simulated(*rows: str, held: tuple[str, ...] = (), uri: str = URL, **responses: Any) -> GpuHost:
    fetched = f"'{uri}/./libcuda1.deb' libcuda1_{V}_amd64.deb 10 SHA256:ab"
    said = [*rows, *(f"Hold {name}" for name in held), fetched, "Done"]
    return GpuHost(responses={"--simulate": {"stdout": said}, **responses})


FAILING = {"success": False, "stdout": [], "stderr": ["E: a splinter"]}


def step_of(command: str) -> str:
    words = ("apt-get check", "--simulate", "Pre-Install-Pkgs", "sourcelist", "apt-get update")
    return next((each for each in words if each in command), command)


def test_it_is_simulated_judged_fetched_and_run() -> None:
    commands, problem = executed(simulated(GOOD), installs)
    assert problem == ""
    assert [*map(step_of, commands)] == [
        *("apt-get update", "sourcelist", "--simulate", "Pre-Install-Pkgs")
    ]


REFUSED: dict[str, tuple[GpuHost, str]] = {
    "beyond its limits": (simulated(GOOD, "Remv desktop [43]"), "it would remove desktop"),
    "another origin": (
        simulated(GOOD, uri="http://evil.example"),
        "would come from another origin (http://evil.example",
    ),
    "no solution": (simulated("E: stuck"), "apt finds no way to install libcuda1=580.95.05-*"),
    "cut off": (GpuHost(responses={"--simulate": {"stdout": [GOOD]}}), "no package was changed"),
    "a repository that is down": (
        simulated(GOOD, sourcelist=FAILING),
        f"the repository {URL} cannot be used: apt says: E: a splinter",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_must_not_be_is_never_run(why: str) -> None:
    host, words = REFUSED[why]
    commands, problem = executed(host, installs)
    assert words in problem
    assert "Pre-Install-Pkgs" not in [*map(step_of, commands)]


def test_another_source_that_is_down_does_not_stop_the_driver() -> None:
    host = simulated(GOOD)
    host.responses[re.compile("apt-get update -q$")] = FAILING  # type: ignore[index]
    commands, problem = executed(host, installs)
    assert problem == ""
    assert step_of(commands[0]) == "apt-get update"


def test_what_somebody_removed_by_force_is_asked_for_with_the_rest() -> None:
    rows = (f" nvidia-smi : Depends: libcuda1 (= {V}) but it is not installed", "E: Unmet")
    commands, _ = executed(simulated(*rows), installs)
    asked = [each for each in commands if "--simulate" in each]
    assert not asked[0].endswith(f"libcuda1={V}")
    assert asked[1].endswith(f"libcuda1={V}")


def test_what_cannot_be_fetched_is_told_so() -> None:
    said = ["E: a splinter", "E: Unable to fetch some archives, maybe run apt-get update"]
    failing = {"Pre-Install-Pkgs": {**FAILING, "stderr": said}}
    _, problem = executed(simulated(GOOD, **failing), installs)
    assert "cannot be fetched: apt says: E: a splinter; no package was changed" in problem


def test_a_transaction_that_fails_says_why() -> None:
    _, problem = executed(simulated(GOOD, **{"Pre-Install-Pkgs": FAILING}), installs)
    assert problem.endswith("install libcuda1 failed: apt says: E: a splinter")


def reinstalls(spec: HostSpec) -> Commands:
    def act(state: Any, host: Any) -> bool:
        names = transaction.owners(state, host, spec, ["/usr/lib/libcuda.so"])
        return transaction.again(state, host, "driver", spec, names)

    yield FunctionCommand(act, (), {})


DPKG = [
    "diversion by glx from: /usr/lib/x",
    "libcuda1:amd64: /usr/lib/libcuda.so",
    "dpkg-query: no",
]


def lost(*said: str) -> GpuHost:
    row = f"Inst libcuda1 [{V}] ({V} NVIDIA CUDA:x [amd64])"
    owners = {"dpkg-query -S /usr/lib": {"stdout": DPKG}}
    return simulated(*(said or (row,)), held=("libcuda1", "dkms"), **owners)


def test_a_package_comes_back_at_its_version_and_stays_on_hold() -> None:
    commands, problem = executed(lost(), reinstalls)
    assert problem == ""
    (ran,) = [each for each in commands if "Pre-Install-Pkgs" in each]
    assert "install --reinstall" in ran
    assert f"libcuda1:amd64={V}" in ran
    assert " libcuda1 env " in ran  # what is held again


NOT_TO_BE_HAD = {
    "its version is gone": "Reinstallation of libcuda1 is not possible, it cannot be downloaded.",
    "apt cannot read its lists": "E: Unable to parse package file /x (1)",
}


@pytest.mark.parametrize("what", NOT_TO_BE_HAD)
def test_a_package_that_cannot_come_back_is_told_with_what_is_left(what: str) -> None:
    commands, problem = executed(lost(NOT_TO_BE_HAD[what]), reinstalls)
    assert f"(apt: {NOT_TO_BE_HAD[what].removeprefix('E: ')})" in problem
    assert "declare one that is offered (`driver_version`" in problem
    assert "Pre-Install-Pkgs" not in [*map(step_of, commands)]


HELD = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 9 (dpkg)"


@pytest.mark.parametrize("said", [HELD, "E: Unmet dependencies"])
def test_somebody_who_holds_the_lock_for_too_long_is_named(said: str) -> None:
    """apt-get waits for it; what else it says then is for the transaction."""
    host = simulated(GOOD, **{"apt-get check": {"success": False, "stdout": [], "stderr": [said]}})
    host.reported["packages.lock_holder"] = "pid 9 (dpkg)"
    commands, problem = executed(host, installs)
    assert step_of(commands[0]) == "apt-get check"
    assert (len(commands) == 1) is (said == HELD)
    assert ("apt is in use by pid 9 (dpkg) for more than" in problem) is (said == HELD)
