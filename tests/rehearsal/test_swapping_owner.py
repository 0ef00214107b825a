"""A race: while a deploy works, its owner exchanges path components as fast as a program can.

One deploy in CI; `PYINFRA_GPU_SWAPS=200` does two hundred (about half an hour).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from harm import PREFIX, harmless
from running import ON_HOST, Deployer, OnlyStage, Run, without_smoke_test

from pyinfra_gpu_rehearsal import LabHost

pytestmark = pytest.mark.rehearsal

HOST = "gpu1"
COUNT = int(os.environ.get("PYINFRA_GPU_SWAPS", "1"))
GIVEN_AWAY = 3
"""Each so-many-th deploy finds a prefix that is all the owner's."""
BAIT = "/srv/bait"
FOLDERS = (
    *("bin", "env", "smoke", "tools", "train", "proofs", "venv", "cache", "training", "state"),
    *("training/training", "training/training/.git", "venv/share"),
)
FILES = (
    *("env/training.env", "bin/torchrun", "smoke/smoke_test.pyz", ".lock"),
    *("venv/.pyinfra-gpu-training.json", "state/verdict.json"),
)
OWNERS = ("training/training", "venv/share", "state/verdict.json")
"""Of these what an owner can exchange in any case."""
NOT_OF_THE_SNAPSHOT = (
    f"cd {PREFIX} && for each in bin env smoke tools train state training venv/share; do"
    " cp -a $each $each.new && rm -r $each && mv $each.new $each || exit 1; done"
)
"""A folder that an overlay took from a lower layer cannot be renamed."""
UNFINISHED = (
    f"cd {PREFIX} && rm -f bin/torchrun env/training.env && su ubuntu -c"
    " 'rm -f venv/.pyinfra-gpu-training.json training/training/train.py'"
)
"""Root has something to write then, and so has the owner."""


@dataclass
class Race:
    """What came of all deploys together."""

    swaps: dict[str, int] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        self.changed += run.changed(HOST)
        self.refused += run.problems(HOST)

    @contextmanager
    def on(self, host: LabHost) -> Iterator[None]:
        """Let the owner exchange paths meanwhile, for links to what is root's."""
        pairs = [f"{PREFIX}/{name}={BAIT}" for name in FOLDERS]
        pairs += [f"{PREFIX}/{name}={BAIT}/file" for name in FILES]
        told = "-p StandardOutput=truncate:/var/tmp/swaps"
        command = f"python3 /var/tmp/swap.py {' '.join(pairs)}"
        host.run(f"systemd-run -q --unit=swap --uid=ubuntu {told} {command}")
        yield
        host.run("systemctl stop swap")
        for path, count in json.loads(host.run("cat /var/tmp/swaps").stdout).items():
            name = path.removeprefix(f"{PREFIX}/")
            self.swaps[name] = self.swaps.get(name, 0) + count


def deploys(deployer: Deployer, number: int) -> list[Deployer]:
    """Return what is deployed in this round: all stages, or those that take a prefix back.

    They are run alone, so that none waits for torch and uv to be installed anew.
    """
    if (number + 1) % GIVEN_AWAY:
        return [without_smoke_test(deployer)]
    stages = ("base", "environment")
    return [OnlyStage(lab=deployer.lab, folder=deployer.folder, stage=name) for name in stages]


def test_an_owner_who_swaps_paths_during_deploys_leads_root_nowhere(
    proven: Callable[[str], LabHost], deployer: Deployer
) -> None:
    host, race, done = proven(HOST), Race(), 0
    host.run(NOT_OF_THE_SNAPSHOT)
    for program in ("swap.py", "swap_back.sh"):
        host.put(ON_HOST / program, f"/var/tmp/{program}")
    deployer = replace(deployer, data=(*deployer.data, "training_local_changes=overwrite"))
    host.run(
        f"cp -a {PREFIX}/tools /root/ && mkdir {BAIT} && cd {BAIT} && ln -s /etc bin"
        " && cp /etc/shadow file && cp file training.env && chmod 600 file"
    )
    while done < COUNT:
        given_away = (done + 1) % GIVEN_AWAY == 0
        host.run(UNFINISHED, check=False)
        if given_away:
            host.run(f"chown -R ubuntu: {PREFIX}")
        # Where all is the owner's, so are the programs that root itself installed there.
        with harmless(host, without=(PREFIX[1:],)):
            for each in deploys(deployer, done):
                with race.on(host):
                    race.add(each.deploy(limit=HOST))
                done += 1
        host.run(f"cd {PREFIX} && rm -rf *.before-pyinfra-gpu* *.aside */*.aside */*/*.aside")
        host.run(f"sh /var/tmp/swap_back.sh {PREFIX}")
        # A git whose directory was exchanged while it worked cannot remove its locks, and may leave
        # no directory at all.
        host.run(f"find {PREFIX}/training/training/.git -name '*.lock' -delete", check=False)
        if given_away:
            host.run(f"cd {PREFIX} && rm -rf tools && cp -a /root/tools .")
    print(json.dumps({"deploys": done, "swaps": race.swaps}), *sorted(set(race.changed)), sep="\n")
    print(*sorted(set(race.refused)), sep="\n")
    assert all(race.swaps[name] > 100 for name in OWNERS), race.swaps
    assert "environment: write training.env" in race.changed
    assert race.swaps["bin"] or COUNT < GIVEN_AWAY
    settled = without_smoke_test(deployer)
    settled.converge(limit=HOST)
    assert settled.converge(limit=HOST).changed(HOST) == []
