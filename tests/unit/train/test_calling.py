"""How a command is typed by whoever reads of it: on the host, or on the controller that asked."""

from __future__ import annotations

import pytest

from pyinfra_gpu.on_host.train import calling
from pyinfra_gpu.on_host.train.calling import VARIABLE, Caller

CALLER = Caller(inventory="inventories/my lab.py", chosen=("--limit", "ws1"))
TO = "pyinfra-gpu train 'inventories/my lab.py'"

# What the launcher says -> what is read on the controller.
SAID = {
    "see `train list`": f"see `{TO} list --limit ws1`",
    "`train watch 2026-x` goes on": f"`{TO} watch --limit ws1` goes on",
    "give `train start --like X --set a=b`": f"give `{TO} start --limit ws1 -- --like X --set a=b`",
    "`train stop`, then `train resume`": f"`{TO} stop --limit ws1`, then `{TO} resume --limit ws1`",
    "`train logs -f X`": f"`{TO} logs --limit ws1 -- X`",
    "`pyinfra-gpu train INVENTORY resume --across GROUP`": f"`{TO} resume --across GROUP`",
    "run pyinfra INVENTORY deploy.py": "run pyinfra --limit ws1 'inventories/my lab.py' deploy.py",
    "`train try big`": "`train try big`",  # there alone
    "the train starts; `python train.py`": "the train starts; `python train.py`",
}


@pytest.mark.parametrize("text", SAID)
def test_a_command_is_told_as_its_reader_types_it(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert calling.said(text) == text
    monkeypatch.setenv(VARIABLE, CALLER.as_text())
    assert calling.said(text) == SAID[text]


@pytest.mark.parametrize("told", ["", "null", "[]", "{", '{"inventory": 1}', "[" * 5000])
def test_a_caller_that_says_nothing_sensible_is_none(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, told)
    assert calling.caller() is None
    assert calling.typed("resume", "X") == "train resume X"


def test_a_quoted_word_stays_one_on_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting with a blank came apart."""
    monkeypatch.setenv(VARIABLE, Caller(inventory="lab.py", chosen=("--limit", "ws1")).as_text())
    said = calling.said("again: `train start a --set 'note=a b' -- --sample 3`")
    whole = "pyinfra-gpu train lab.py start --limit ws1 -- a --set 'note=a b' -- --sample 3"
    assert said == f"again: `{whole}`"
    assert (
        calling.said("`train why 'x`") == "`pyinfra-gpu train lab.py why --limit ws1 -- ''\"'\"'x'`"
    )
