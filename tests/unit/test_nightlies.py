"""A nightly's files: kept on the controller at first use, and no other date's in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_host import DATA, FakeHost
from test_wheels import NOBODY, this_machine
from wheels import index as lay_out
from wheels import server, wheel

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.engine import torch_install, wheels

TAG = "cp311-cp311-manylinux_2_28_x86_64"
DATE = "2.16.0.dev20261120"
TORCH = f"torch-{DATE}+cpu-{TAG}.whl"
TRITON = f"pytorch_triton-3.6.0-{TAG}.whl"


@dataclass
class Nightly:
    """A host that declares a nightly, an index that has it, and what was asked and said."""

    index: Path
    www: Path
    url: str
    requests: Callable[[], list[str]]
    there: Path
    said: list[str]

    def brought(self, version: str = DATE, *, relay: bool = True) -> bool:
        """Have a version kept and brought to the host.

        + relay: lay the index out before, as its wheels now are
        """
        if relay:
            lay_out(self.index, self.www / "simple")
        data = {
            **DATA, "pytorch_source": "nightly", "pytorch_version": version,
            "pytorch_index_url": f"{self.url}simple", "prefix": str(self.there),
        }  # fmt: skip
        record = FakeHost().record()
        host: Any = this_machine()
        return torch_install.bring(host.state, host, resolve(data, "ws1"), record, [])

    def files(self) -> list[str]:
        """Return the wheels that the host has."""
        return sorted(each.name for each in self.there.rglob("build/wheels/*.whl"))


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nightly]:
    """Yield a host that is this machine, and an index with two nights."""

    said: list[str] = []
    for name in ("failed", "given_up"):
        reported = lambda *given: bool(said.append(given[-1]))  # noqa: E731
        monkeypatch.setattr(torch_install, name, reported)
    monkeypatch.setattr(torch_install, "as_owner", lambda spec, record: NOBODY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    served = tmp_path / "wheels"
    needs = "pytorch-triton==3.6.0; platform_system == 'Linux'"
    for version in (DATE, "2.16.0.dev20261122"):
        wheel(served, "torch", f"{version}+cpu", requires=needs, tag=TAG, text=version)
    wheel(served, "torch", f"{DATE}+cpu", tag="cp311-cp311-manylinux_2_28_aarch64")
    wheel(served, "torch", f"{DATE}+cpu", tag="cp313-cp313t-manylinux_2_28_x86_64")
    wheel(served, "pytorch_triton", "3.6.0", tag=TAG)
    wheel(served, "pytorch_triton", "3.7.0", tag=TAG)
    www = tmp_path / "www"
    www.mkdir()
    with server(www) as (url, requests):
        yield Nightly(served, www, url, requests, tmp_path / "host", said)


def test_the_wheel_and_its_triton_are_kept_and_the_index_is_asked_once(nightly: Nightly) -> None:
    assert nightly.brought(), nightly.said
    assert nightly.files() == [TRITON, TORCH]
    asked = nightly.requests()
    for path in nightly.there.rglob("*.whl"):
        path.unlink()
    for path in nightly.index.glob("*20261120*"):
        path.unlink()  # the index forgets
    assert nightly.brought(), nightly.said
    assert nightly.files() == [TRITON, TORCH]
    assert nightly.requests() == asked


def test_a_date_that_never_was_is_one_sentence_and_no_other_is_taken(nightly: Nightly) -> None:
    assert not nightly.brought("2.16.0.dev20261121")
    (sentence,) = nightly.said[-1:]
    assert "no torch==2.16.0.dev20261121+cpu for Python 3.11 on x86_64 is there" in sentence
    assert "are 2.16.0.dev20261120+cpu, 2.16.0.dev20261122+cpu: set pytorch_version" in sentence
    assert nightly.files() == []


@pytest.mark.parametrize("name", [TORCH, "kept.json"])
def test_what_was_kept_and_is_damaged_is_refused_and_never_replaced(
    nightly: Nightly, name: str
) -> None:
    assert nightly.brought()
    (kept,) = wheels.nightlies().rglob(name)
    kept.write_bytes(b'{"files": [{"name"')
    assert not nightly.brought()
    assert "is damaged: restore it from a backup" in nightly.said[-1]
    assert kept.read_bytes() == b'{"files": [{"name"'
