"""A real host whose owner is hostile, and one with secrets."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from harm import PREFIX, harmless
from running import ON_HOST, Deployer, Kept, without_smoke_test

from pyinfra_gpu_rehearsal import LabHost
from tests.night import by_night

OWNERS = (
    *("venv/.pyinfra-gpu-training.json", "state/verdict.json", "state/verdict.json.logs"),
    *("training/training/.git", "training/training/pyproject.toml", "training/training"),
)
"""What an owner can exchange below the prefix, and is repaired in seconds."""
PYTHONS = ("venv/bin/python", "venv/pyvenv.cfg")
"""The same, but all of torch is installed anew."""
KINDS = ("fifo", "hard", "crowd", "program")
OWNER_ID = 1000
CANARY = "can4ry \"of\" $HOME `id` \\ 'us'"


@pytest.fixture(scope="module")
def kept(proven: Callable[[str], LabHost]) -> Kept:
    """Return gpu1, completely deployed, which each test leaves proven."""
    return Kept(lambda: proven("gpu1"))


def plant(host: LabHost, kind: str, *names: str) -> None:
    """Put something hostile in the place of each of these, as the owner."""
    host.put(ON_HOST / "plant.sh", "/var/tmp/plant.sh")
    for name in names:
        host.run(f"sh /var/tmp/plant.sh {kind} {PREFIX}/{name}", root=False)


def planted_ran_as(host: LabHost) -> list[str]:
    """Return as whom planted programs ran, as they say themselves."""
    return host.run("cat /var/tmp/trace/* 2>/dev/null || :").stdout.split()


@pytest.mark.parametrize("kind", by_night(KINDS, ("program",)))
def test_a_look_at_what_a_hostile_owner_made_changes_nothing_and_runs_nothing_as_root(
    kind: str, proven: Callable[[str], LabHost], deployer: Deployer
) -> None:
    host = proven("gpu1")
    names = OWNERS[:2] if kind == "crowd" else OWNERS
    plant(host, kind, *names, *(PYTHONS if kind == "program" else ()))
    with harmless(host) as trace:
        check = deployer.check(limit="gpu1")
        assert check.code in (1, 2)
        assert "$6$" not in json.dumps(check.answer)  # of /etc/shadow
        deployer.dry(limit="gpu1")
        without_smoke_test(deployer).deploy(limit="gpu1")
    assert "0" not in planted_ran_as(host)
    assert kind != "program" or trace.ran_as[f"{PREFIX}/{PYTHONS[0]}"] == [OWNER_ID]
    assert not host.run("ls -A /etc | grep -c -e pyinfra-gpu -e verdict || :").stdout.strip("0\n")


@contextmanager
def no_command_holds_the_canary(host: LabHost) -> Iterator[None]:
    """No process on the host has the canary on its command line meanwhile."""
    host.put(ON_HOST / "watch_commands.sh", "/root/watch_commands.sh")
    host.run("systemd-run -q --unit canary sh /root/watch_commands.sh /root/seen")
    yield
    assert host.run("systemctl is-active canary && systemctl stop canary").stdout == "active\n"
    assert host.run("cat /root/seen").stdout == ""


def test_a_secret_is_the_owners_alone_and_is_read_back_by_systemd_and_sh(
    proven: Callable[[str], LabHost], deployer: Deployer
) -> None:
    host = proven("gpu1")
    variables = json.dumps({"WANDB_API_KEY": CANARY, "OTHER": "can4ry-plain"})
    declared = ("--data", f"environment_variables={variables}", "--data", "smoke=skip")
    with no_command_holds_the_canary(host):
        first = deployer.deploy("--diff", "-vv", *declared, limit="gpu1")
    assert first.code == 0, first.output
    file = f"{PREFIX}/env/training.env"
    assert host.run(f"stat -c '%U %a' {file}").stdout == "ubuntu 600\n"
    changed = f"t=$(sed s/can4ry-plain/can4ry-other/ {file}) && printf '%s\\n' \"$t\" >{file}"
    host.run(changed, root=False)
    with no_command_holds_the_canary(host):
        again = deployer.deploy("--diff", "-vv", *declared, limit="gpu1")
    assert "training.env differs" in "; ".join(again.stage("gpu1", "environment")["found"])
    for run in (first, again):
        assert "can4ry" not in run.output.replace(variables, "")
        assert "can4ry" not in json.dumps(run.report)
    readable = "\\( -path '/var/log/*' -o -perm /044 \\)"  # by anybody, or a log
    recent = f"find / /tmp /run -xdev -type f -mmin -60 {readable} -exec grep -l can4ry {{}} +"
    assert host.run(f"{recent} 2>/dev/null || :").stdout == ""
    read = f"systemd-run -q --pipe --wait -p EnvironmentFile={file} printenv WANDB_API_KEY"
    assert host.run(read).stdout == f"{CANARY}\n"
    script = f'set -a; . {file}; printf "%s" "$WANDB_API_KEY"'
    assert host.run(f"sh -c {shlex.quote(script)}", root=False).stdout == CANARY
