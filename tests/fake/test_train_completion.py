"""What Tab offers on the controller: groups and hosts of the inventory that was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyinfra_gpu import cli

HOSTS = """gpu = ["ws1", "ws2"]
cpu = ["ws3"]
"""
PLACES = "pyinfra-gpu train places.py"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pyinfra-gpu tr", {"train"}),
        ("pyinfra-gpu check places.py --limit ", {"gpu", "cpu", "places", "ws1", "ws2", "ws3"}),
        ("pyinfra-gpu check places.py --data ", set()),
        (f"{PLACES} st", {"start", "stop"}),
        (f"{PLACES} start --across ", {"gpu", "cpu", "places"}),
        (f"{PLACES} logs -- --rank ", set()),
        ("pyinfra-gpu train nothing.py start --across ", set()),
    ],
)
def test_what_is_offered_is_what_the_inventory_declares(
    line: str,
    offered: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text(HOSTS, encoding="utf-8")
    monkeypatch.setenv("_PYINFRA_GPU_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        cli.main([])
    found = [row.partition(",") for row in capsys.readouterr().out.splitlines()]
    assert {word for kind, _, word in found if kind == "plain"} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_own_code(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "_PYINFRA_GPU_COMPLETE" in capsys.readouterr().out
