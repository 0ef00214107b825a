"""What Tab offers on the controller: groups and presets of the inventory that was typed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from pyinfra_gpu.report.train import offering
from pyinfra_gpu.report.train.cli import add_parser

PRESETS = {"training_presets": {"balanced": {}, "big": {}}}


def typed(inventory: str, **more: object) -> argparse.Namespace:
    return argparse.Namespace(**{"inventory": inventory, "action": "start", "limit": [], **more})


def test_groups_and_presets_are_those_of_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = f"gpu = [('ws1', {PRESETS!r}), 'ws2']\ncpu = [('ws3', {{'training_presets': 3}})]\n"
    Path("lab.py").write_text(hosts, encoding="utf-8")
    assert {*offering.groups("", typed("lab.py"))} == {"gpu", "cpu", "lab"}
    assert offering.presets("", typed("lab.py")) == ["balanced", "big"]
    assert offering.presets("", typed("lab.py", limit=["ws2"])) == []
    assert offering.presets("", typed("lab.py", action="stop")) == []


@pytest.mark.parametrize("text", ["gpu = [", "1 / 0", None])
def test_of_an_inventory_that_cannot_be_read_nothing_is_offered(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("broken.py").write_text(text, encoding="utf-8")
    assert offering.groups("", typed("broken.py")) == []
    assert offering.presets("", typed("broken.py")) == []


def test_they_are_offered_where_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    add_parser(subparsers)
    known = {
        action.dest: getattr(action, "completer", None)
        for action in subparsers.choices["train"]._actions
    }
    assert (known["across"], known["name"]) == (offering.groups, offering.presets)
