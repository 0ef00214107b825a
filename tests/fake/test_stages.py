"""Our operations in pyinfra's real prepare and execute, on hosts in every state we care about."""

from __future__ import annotations

import json
from typing import Any

import pytest
import verdicts
from fake_host import FACTS, FakeHost, FakeRun, entry

from pyinfra_gpu.stages.environment import findings as environment
from pyinfra_gpu.stages.host import unread
from pyinfra_gpu.stages.layout import findings as layout

PREFIX = "/opt/pyinfra-gpu"


def test_a_finished_host_needs_nothing_and_is_looked_at_once_per_phase() -> None:
    run = FakeRun(FakeHost()).prepare()
    assert run.changing("ws1") == []
    assert run.looks("ws1") == 1
    run.execute()
    assert run.commands("ws1") == []
    assert run.looks("ws1") == 2


def test_a_bare_host_gets_every_stage_and_a_plan_runs_nothing() -> None:
    run = FakeRun(FakeHost(bare=True)).prepare()
    assert run.changing("ws1") == [
        "Base | Install distribution packages",
        "Base | Create directories",
        "Base | Check out the training repository",
        "PyTorch | Install uv",
        "PyTorch | Create the virtual environment",
        "PyTorch | Install torch",
        "Environment | Write the environment files",
        "Training | Install its requirements",
        "Training | Install the train launcher",
        "Smoke | Run the smoke test",
    ]
    changes = [command for command in run.commands("ws1") if not _only_looks(command)]
    assert changes == []


def _only_looks(command: str) -> bool:
    """pyinfra's own facts, which the first step of a stock operation asks, and git of a plan."""
    words = ("install", "mkdir", " rm ")
    return "reachable.sh" in command or not any(each in command for each in words)


INSTALL, MAKE = "Base | Install distribution packages", "Base | Create directories"
TORCH, VENV = "PyTorch | Install torch", "PyTorch | Create the virtual environment"
FILES, TRAIN = (
    "Environment | Write the environment files",
    "Smoke | Run the smoke test",
)
CHECK_OUT, REQUIRE = (
    "Base | Check out the training repository",
    "Training | Install its requirements",
)
USUAL = FakeHost().data
GITS = [f"training.{each}" for each in ("commit", "dirty", "dirty_count", "submodules", "lfs")]


def at(name: str, *there: str) -> FakeHost:
    """A host on which something else stands at a path below the prefix, or nothing."""
    return FakeHost(entries={f"{PREFIX}{name}": entry(*there) if there else None})


DIRTY = {"training.dirty_count": 1}
DIRTY_ROW = {"training.dirty": [" M train.py"]}


DEVIATIONS: dict[str, tuple[FakeHost, list[str]]] = {
    "a package is missing": (
        FakeHost(reported={"packages.installed": {"git": "1:2.39.5"}}), [INSTALL],
    ),
    "git is missing, so that nobody can tell what is checked out": (
        FakeHost(
            reported={
                "packages.installed": {
                    name: version
                    for name, version in FACTS["packages.installed"].items()
                    if name != "git"
                },
                **dict.fromkeys(GITS, "?git: git cannot be run"),
            }
        ),
        [INSTALL, CHECK_OUT],
    ),
    "the prefix is a user's": (at("", "dir", "0700", "ubuntu"), [MAKE]),
    "a directory of root's is a user's": (at("/env", "dir", "0755", "ubuntu"), [MAKE]),
    "a directory of the owner's is root's": (at("/cache", "dir", "0755"), [MAKE]),
    "the environment is root's": (at("/venv", "dir", "0755"), [MAKE]),
    "the lock is missing": (at("/.lock"), [MAKE]),
    "anybody can hold the lock": (at("/.lock", "file", "0644"), [MAKE]),
    "the lock can be exchanged": (at("/.lock", "file", "0640", "ubuntu"), [MAKE]),
    "the wrapper is a user's": (at("/bin/torchrun", "file", "0755", "ubuntu"), [FILES]),
    "the wrapper cannot be executed": (at("/bin/torchrun", "file", "0644"), [FILES]),
    "an environment file with variables of the user's is root's": (
        FakeHost(
            data={**USUAL, "environment_variables": {"A": "1"}},
            entries={f"{PREFIX}/env/training.env": entry("file", "0600")},
        ),
        [FILES],
    ),
    "without root nothing can be given to anybody, and nobody is asked for linger": (
        FakeHost(
            data={**USUAL, "privilege": "none"}, reported={"launcher.linger": False},
            entries={f"{PREFIX}/env/training.env": entry("file", "0644")},
        ),
        [],
    ),
    "uv has another version": (FakeHost(reported={"torch.uv": "0.1.0"}), ["PyTorch | Install uv"]),
    "another Python": (
        FakeHost(
            data={**USUAL, "pytorch_python": "3.12"},
            reported={"torch.declared": "/usr/bin/python3.12"},
        ),
        [VENV, TORCH],
    ),
    "a cut installation": (FakeHost(reported={"torch.installing": True}), [TORCH, REQUIRE]),
    "a library was copied beside torch's": (
        FakeHost(reported={"torch.foreign": ["torch/lib/libnccl.so.2"]}), [TORCH],
    ),
    "local changes at the declared commit, which are a person's": (
        FakeHost(reported={**DIRTY, **DIRTY_ROW}), [],
    ),
    "another commit": (FakeHost(reported={"training.commit": "f" * 40}), [CHECK_OUT]),
    "the requirements changed": (
        FakeHost(
            reported={"training.stamp_text": '{"requirements_sha256": "0", "distributions": {}}'},
        ),
        [REQUIRE],
    ),
    "the smoke stamp is gone": (FakeHost(reported={"smoke.stamp": None}), [TRAIN]),
    "the smoke stamp is damaged": (FakeHost(reported={"smoke.stamp": '{"fing": "12"}'}), [TRAIN]),
    "the smoke test is always wanted": (FakeHost(data={**USUAL, "smoke": "always"}), [TRAIN]),
}  # fmt: skip


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_a_deviation_makes_exactly_its_own_operation_act(deviation: str) -> None:
    host, operations = DEVIATIONS[deviation]
    assert FakeRun(host).prepare().changing("ws1") == operations


def test_a_failed_test_is_not_hidden_by_an_older_stamp() -> None:
    failed = verdicts.failed("S4.finished", "rank 1 raised")
    verdict = json.dumps(verdicts.document(status="fail", failed=failed))
    host = FakeHost(reported={"smoke.stamp": None, "smoke.verdict": verdict})
    assert FakeRun(host).prepare().changing("ws1") == [TRAIN]


def test_a_plan_knows_that_another_environment_file_means_another_test() -> None:
    stamped = FakeHost()
    stamp = stamped.answer()["smoke.stamp"]
    changed = {**stamped.data, "environment_variables": {"A": "1"}}
    host = FakeHost(data=changed, reported={"smoke.stamp": stamp})
    assert TRAIN in FakeRun(host).prepare().changing("ws1")


def test_a_refused_host_is_among_the_failed_ones_after_a_dry_run_too() -> None:
    run = FakeRun(FakeHost(reported={"system.init": "tini"}), FakeHost(name="ws2")).prepare()
    assert run.failed() == {"ws1"}


def test_a_plan_says_once_that_a_host_cannot_be_looked_at() -> None:
    run = FakeRun(FakeHost(answers=False), FakeHost(name="ws2")).prepare()
    assert run.changing("ws1") == ["Preflight | Check requirements"]
    assert run.looks("ws1") == 1
    assert run.failed() == {"ws1"}


@pytest.mark.parametrize(
    ("data", "entries", "words"),
    [
        ({"owner": "alice"}, {}, "alice tools root bin root env root smoke root"),
        ({"privilege": "none"}, {"state": None, ".lock": None}, "'' tools root bin root env root"),
    ],
)
def test_directories_are_made_for_the_owner_and_nothing_is_given_away_below_them(
    data: dict[str, object], entries: dict[str, str | None], words: str
) -> None:
    paths = {f"{PREFIX}/{name}": row for name, row in entries.items()}
    run = FakeRun(FakeHost(data={**USUAL, **data}, entries=paths), FakeHost(name="ws2")).prepare()
    assert MAKE in run.changing("ws1")
    executed = run.execute().executed("ws1")
    (command,) = [command for command in executed if "directories.sh" in command]
    assert f"directories.sh /opt/pyinfra-gpu {words}" in command
    assert "cache owner training owner state owner venv present" in command
    assert not [each for each in executed if "chown -R" in each]


REFUSED: dict[str, FakeHost] = {
    "no systemd": FakeHost(reported={"system.init": "tini"}),
    "a prefix that root cannot trust": FakeHost(
        data={**USUAL, "prefix": "/home/ubuntu/gpu"}, bare=True,
        reported={"layout.open": "/home/ubuntu"},
    ),
    "an owner whom the host does not know": FakeHost(
        data={**USUAL, "owner": "alice"}, bare=True,
        reported={"layout.owner_problem": "there is no user alice on this host"},
    ),
    "something of somebody's in the place of a directory": at("/cache", "file", "0644", "ubuntu"),
    "local changes at another commit": FakeHost(
        reported={**DIRTY, "training.commit": "f" * 40, **DIRTY_ROW},
    ),
    "a checkout that cannot be read": FakeHost(reported={"training.commit": "?no git"}),
    "a host that does not answer": FakeHost(answers=False),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_work_fails_alone_before_anything_is_written(why: str) -> None:
    run = FakeRun(REFUSED[why], FakeHost(name="ws2")).prepare().execute()
    assert run.failed() == {"ws1"}
    assert run.executed("ws1") == []
    assert run.commands("ws2") == []


def given_away() -> FakeHost:
    """A prefix that somebody gave to the owner, by `chown -R`, and which has no state."""
    names = ("", "/tools", "/bin", "/env", "/smoke", "/cache", "/training", "/venv")
    entries: dict[str, Any] = {f"{PREFIX}{name}": entry("dir", "0755", "ubuntu") for name in names}
    entries |= {f"{PREFIX}/state": None, f"{PREFIX}/.lock": entry("file", "0644", "ubuntu")}
    entries[f"{PREFIX}/bin/torchrun"] = entry("file", "0755", "ubuntu")
    entries[f"{PREFIX}/env/training.env"] = entry("file", "0644", "ubuntu")
    return FakeHost(
        entries=entries, reported={"smoke.stamp": "?somebody else than root can change it"}
    )


def test_a_prefix_that_was_given_to_the_owner_is_taken_back_and_the_plan_says_so() -> None:
    host = given_away()
    found = layout.judge(host.spec(), host.record())
    assert [each.found for each in found] == [
        f"{PREFIX}, {PREFIX}/tools and 4 more: owner ubuntu",
        f"{PREFIX}/state: missing",
    ]
    assert FakeRun(host).prepare().changing("ws1") == [MAKE, FILES, TRAIN]


def test_further_packages_are_installed_by_exactly_their_names() -> None:
    declared = {"packages_extra": ["tmux", "git", "nvtop"], "preflight_apt_wait_s": 90}
    host = FakeHost(data={**USUAL, **declared})
    run = FakeRun(host, FakeHost(name="ws2")).prepare()
    assert run.changing("ws1") == [INSTALL]
    command = next(each for each in run.execute().commands("ws1") if " install " in each)
    assert "-o DPkg::Lock::Timeout=90 " in command  # somebody may take the lock after our look
    assert command.endswith("-o APT::Cmd::Pattern-Only=true install nvtop tmux")
    # needrestart would otherwise restart what of the user's runs, in the middle of their work
    assert "NEEDRESTART_SUSPEND=1 apt-get " in command


def test_whose_a_file_is_cannot_be_judged_where_the_login_user_is_unknown() -> None:
    host = FakeHost(reported={"system.user": "?no id"})
    record = host.record()
    assert environment.judge(host.spec(), record) == []
    for concern in (environment, layout):
        assert "cannot tell what is there: no id" in unread(concern, host.spec(), record)
