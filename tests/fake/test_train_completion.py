"""What Tab offers on the controller: groups and presets of the inventory that was typed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import completion
from pyinfra_gpu.report.check import offering as choosing
from pyinfra_gpu.report.train import offering
from pyinfra_gpu.report.train.cli import add_parser
from tests import forked

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


def test_the_hosts_that_a_limit_may_name_are_those_of_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tab behind --limit offered file names."""
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text("gpu = ['ws1', 'ws2']\n", encoding="utf-8")
    found = choosing.hosts("", typed("places.py", limit=["ws1"]))
    assert {*found} >= {"gpu", "ws1", "ws2"}
    assert choosing.hosts("", typed("nothing.py")) == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pyinfra-gpu check places.py --limit ", {"gpu", "places", "ws1", "ws2"}),
        ("pyinfra-gpu check places.py --exclude w", {"ws1", "ws2"}),
        ("pyinfra-gpu check places.py --data ", set()),
        ("pyinfra-gpu check pla", {"places.py"}),
        ("pyinfra-gpu report places.py --output pla", {"places.py"}),
        ("pyinfra-gpu train places.py logs -- --rank ", set()),
    ],
)
def test_files_are_offered_only_where_a_file_is_meant(
    line: str, offered: set[str], tmp_path: Path
) -> None:
    (tmp_path / "places.py").write_text("gpu = ['ws1', 'ws2']\n", encoding="utf-8")
    answer = tmp_path / "answer"
    root = Path(__file__).parents[2]
    asked = {
        **os.environ,
        "PYTHONPATH": str(root),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    forked.run(["pyinfra-gpu"], asked, 60, folder=tmp_path)
    found = answer.read_text(encoding="utf-8").split("\v") if answer.exists() else []
    assert {each.strip() for each in found if each and not each.startswith("-")} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_offers_no_files_where_there_is_nothing_to_offer(shell: str) -> None:
    assert "-o default" not in completion.shell_code("pyinfra-gpu", shell)
