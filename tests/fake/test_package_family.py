"""A host of another family: the acting part asks its manager, and knows no family itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from drawer import Drawer
from gpu_host import DATA, FINGERPRINT, GpuHost, GpuRun
from pyinfra.api import deploy, operation
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu import packages
from pyinfra_gpu.drift.driver_repository import preferences
from pyinfra_gpu.drift.history import explain
from pyinfra_gpu.engine import reinstall, transaction
from pyinfra_gpu.engine.converge import Commands
from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.package_manager import finish_interrupted, wait_for_lock
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.operations import packages as distribution_packages
from pyinfra_gpu.packages.manager import PackageManager
from pyinfra_gpu.packages.model import PackageChange, Source, Transaction
from pyinfra_gpu.spec import HostSpec

URL = "http://mirror.example/drawer"
SYSTEM = ['PRETTY_NAME="Cupboard 3"', 'VERSION_ID="3"', "ID=cupboard"]
GOOD = f"+ libcuda1 none 580.95.05 NVIDIA_CUDA {URL}/libcuda1"


@pytest.fixture(autouse=True)
def family(monkeypatch: pytest.MonkeyPatch) -> Drawer:
    drawer = Drawer()
    monkeypatch.setitem(packages.BY_DISTRIBUTION, "cupboard", drawer)
    return drawer


def cupboard(name: str = "ws1", **changes: Any) -> GpuHost:
    data = {**DATA, "driver_repository_url": URL, "driver_key_fingerprint": FINGERPRINT}
    lists = {"system.os": SYSTEM, "nvidia.package": [], **changes.pop("lists", {})}
    data |= changes.pop("data", {})
    return GpuHost(name=name, data=data, lists=lists, **changes)


Body = Callable[[HostSpec, Record], Commands]


def executed(host: GpuHost, body: Body) -> tuple[list[str], str]:
    """Run one operation on a host of that family: its commands, and why it failed."""

    @operation()
    def act(spec: HostSpec) -> Commands:
        record = look(spec)
        assert record is not None
        yield from body(spec, record)

    @deploy("Family")
    def task(wanted: HostSpec) -> None:
        if wanted.host.endswith("ws1"):
            act(name="Act", spec=wanted)

    made = GpuRun(host, cupboard("ws2"), tasks=(task,))
    journal = Journal(lambda state, journal: None)
    made.state.add_callback_handler(journal)  # type: ignore[no-untyped-call]
    made.prepare().execute()
    problems = [each.problem or "" for name in journal.entries for each in journal.of(name)]
    commands = made.executed("ws1")
    assert not [each for each in commands if re.search(r"\b(apt|dpkg)", each)]
    return commands, "".join(problems)


def installs(spec: HostSpec, record: Record) -> Commands:
    yield from transaction.install("driver", spec, ["libcuda1@580.95.05.*"])


def planned(*rows: str, **answers: Any) -> GpuHost:
    return cupboard(responses={"drawer plan": {"stdout": [*rows, "done"]}, **answers})


def test_a_transaction_is_planned_judged_fetched_and_run_by_the_hosts_own_manager() -> None:
    commands, problem = executed(planned(GOOD), installs)
    words = "--for=pyinfra-gpu --wait=120 'libcuda1@580.95.05.*'"
    assert commands == [
        "drawer look /etc/drawer/ours",
        f"drawer plan {words}",
        f"drawer fetch {words}",
        f"drawer put {words} --only=libcuda1:580.95.05",
    ]
    assert problem == ""


FAILING = {"success": False, "stdout": [], "stderr": ["ouch: a splinter", "bye"]}
REFUSED: dict[str, tuple[GpuHost, str]] = {
    "removes something": (planned(GOOD, "- desktop 43"), "it would remove desktop"),
    "on hold": (
        planned(GOOD, "+ dkms 3.0 3.1 Cupboard http://x/dkms", "h dkms"),
        "dkms, which is on hold (`drawer free dkms` frees it)",
    ),
    "another branch": (
        planned(f"+ libcuda1 none 595.71.05 NVIDIA_CUDA {URL}/x"),
        "would leave the declared branch 580",
    ),
    "another origin": (
        planned("+ libcuda1 none 580.95.05 NVIDIA_CUDA http://evil.example/x"),
        "would come from another origin (http://evil.example/x)",
    ),
    "a downgrade": (
        planned("+ dkms 3.10 3.9 Cupboard http://x/dkms"),
        "it would downgrade dkms from 3.10 to 3.9",
    ),
    "not understood": (planned("? what"), "drawer said something that is not understood (? what)"),
    "no solution": (planned("! stuck"), "drawer finds no way to install libcuda1@580.95.05.*"),
    "cut off": (cupboard(responses={"drawer plan": {"stdout": [GOOD]}}), "nothing was changed"),
    "silence": (cupboard(responses={"drawer plan": {"stdout": []}}), "drawer printed nothing"),
    "not to be fetched": (planned(GOOD, **{"drawer fetch": FAILING}), "drawer says: a splinter"),
    "down": (
        planned(GOOD, **{"drawer look /etc": FAILING}),
        f"the repository {URL} cannot be used: drawer says: a splinter",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_must_not_be_is_never_run_and_said_in_its_managers_words(why: str) -> None:
    host, words = REFUSED[why]
    commands, problem = executed(host, installs)
    assert words in problem
    assert not [each for each in commands if each.startswith("drawer put")]


def test_where_the_lists_are_old_they_are_all_updated_once() -> None:
    commands, _ = executed(planned("! stuck"), installs)
    assert commands.count("drawer look everywhere") == 1
    assert len([each for each in commands if each.startswith("drawer plan")]) == 2


def test_a_transaction_that_fails_says_why() -> None:
    _, problem = executed(planned(GOOD, **{"drawer put": FAILING}), installs)
    assert problem.endswith("install libcuda1 failed: drawer says: a splinter")


def reinstalls(spec: HostSpec, record: Record) -> Commands:
    def act(state: Any, host: Any) -> bool:
        names = reinstall.owners(state, host, spec, ["/usr/lib/libcuda.so"])
        names += reinstall.with_missing_files(state, host, spec, "/usr/local/cuda")
        return reinstall.again(state, host, "driver", spec, names)

    yield FunctionCommand(act, (), {})


def test_a_package_comes_back_at_its_version_and_stays_on_hold() -> None:
    host = planned(
        f"+ libcuda1 580.95.05 580.95.05 NVIDIA_CUDA {URL}/libcuda1",
        "h libcuda1",
        "h dkms",
        **{
            "drawer whose": {"stdout": ["libcuda1"]},
            "drawer lost": {"stdout": ["nvcc", "nvcc"]},
            "drawer versions": {"stdout": ["libcuda1 580.95.05"]},
            "drawer offer": {"stdout": ["libcuda1 580.105.08 580.95.05"]},
        },
    )
    commands, problem = executed(host, reinstalls)
    assert problem == ""
    (put,) = [each for each in commands if each.startswith("drawer put")]
    assert "--again libcuda1@580.95.05 nvcc " in put
    assert put.endswith(" --glued=libcuda1")
    assert "drawer lost /usr/local/cuda" in commands


def test_somebody_who_holds_the_lock_is_named_with_the_manager() -> None:
    def waits(spec: HostSpec, record: Record) -> Commands:
        yield FunctionCommand(wait_for_lock, ("driver", spec), {})

    busy = {"packages.lock": "pid 9 (drawer)"}
    host = cupboard(plain=busy, data={"preflight_apt_wait_s": 0})
    commands, problem = executed(host, waits)
    assert commands == []
    assert "drawer is in use by pid 9 (drawer)" in problem


def test_an_interrupted_installation_is_finished() -> None:
    def finishes(spec: HostSpec, record: Record) -> Commands:
        yield finish_interrupted("driver", spec, record)

    assert executed(cupboard(), finishes) == (["drawer tidy"], "")


def test_what_the_stages_need_comes_from_the_hosts_own_manager() -> None:
    host = cupboard(lists={"packages.installed": [], "packages.half_configured": ["git"]})
    made = GpuRun(host, cupboard("ws2"), tasks=(needed,)).prepare().execute()
    commands = made.executed("ws1")
    assert commands[0] == "drawer tidy"
    assert commands[1].startswith("drawer put --wait=120 ")
    assert "python3-venv" in commands[1]


@deploy("Needed")
def needed(wanted: HostSpec) -> None:
    if wanted.host.endswith("ws1"):
        distribution_packages.present(name="Install", spec=wanted)


def test_a_look_reads_the_families_own_lists_and_log() -> None:
    host = cupboard(
        lists={
            "nvidia.source_line": [f"/etc/drawer/x:from {URL}", "/etc/drawer/x:off http://nvidia/"],
            "nvidia.change": ["2026-11-22T08:00:00|libcuda1|580.95.05|drawer put u:p@x"],
        },
        plain={"nvidia.repository": URL},
    )
    record = parse(host.probe_lines())
    assert record.nvidia.sources == (Source(file="/etc/drawer/x", uri=URL, signed_by=None),)
    (change,) = record.nvidia.history  # type: ignore[misc]
    assert isinstance(change, PackageChange)
    assert explain(("libcuda1",), (change,)) == change
    assert preferences(host.spec(), record).startswith("580 None")


def test_each_family_knows_its_own_transactions(family: Drawer) -> None:
    wanted = Transaction(packages=("libcuda1",))
    for manager in (family, packages.manager_for("ubuntu")):
        assert packages.is_ours(manager.fetch(wanted))
        assert set(manager.files.all) <= set(packages.own_files())
    assert not packages.is_ours("/usr/bin/unattended-upgrade")
    assert not packages.is_ours(None)


def members(of: type) -> Iterator[str]:
    return (name for name in vars(of) if not name.startswith("_"))


@pytest.mark.parametrize("os_id", ["debian", "ubuntu", "cupboard"])
def test_a_manager_has_all_that_the_protocol_asks_for(os_id: str) -> None:
    manager = packages.manager_for(os_id)
    for name in members(PackageManager):
        mine, asked = getattr(manager, name), getattr(PackageManager, name)
        if isinstance(asked, property):
            assert mine, name
        else:
            _, *wanted = inspect.signature(asked).parameters
            assert [*inspect.signature(mine).parameters] == wanted, name
