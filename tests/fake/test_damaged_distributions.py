"""Wheels beside torch whose files are damaged: which are repaired, how, and which are a user's."""

from __future__ import annotations

from typing import Any

from fake_host import DATA, FakeHost, FakeRun

from pyinfra_gpu.stages.finding import Finding
from pyinfra_gpu.stages.pytorch import findings as pytorch

NUMPY, MINE = {"numpy": "numpy/__init__.py"}, {"labs-tool": "labs_tool.py"}
WITHOUT_TRAINING: dict[str, object] = {"stack": DATA["stack"], "pytorch_lock": "ignore"}


def found(damaged: dict[str, str], needs: tuple[str, ...] = (), **changes: object) -> list[Finding]:
    """What is wrong with a host's environment where distributions are damaged."""
    host = FakeHost(
        data={**WITHOUT_TRAINING, **changes},
        reported={
            "training.stamp_text": None,
            "torch.damaged_others": damaged,
            "torch.needs": list(needs),
            "torch.distributions": {
                "torch": "2.13.0+cpu",
                "numpy": "2.4.6",
                "labs-tool": "1.0",
                "sympy": "1.14.0",
            },
        },
    )
    record = host.record()
    return pytorch.judge(host.spec(), record)


def test_what_torch_needs_is_repaired_and_named_with_its_first_damaged_file() -> None:
    (finding,) = found({**NUMPY, "sympy": "sympy/core.py"}, needs=("numpy", "sympy", "torch"))
    assert finding.id == "pytorch.files-damaged"
    assert finding.effect == "repair"
    assert finding.found == "numpy damaged: numpy/__init__.py, sympy damaged: sympy/core.py"
    assert finding.action == "reinstall numpy, sympy"


def test_a_users_own_is_told_of_and_left() -> None:
    ours, theirs = found({**NUMPY, **MINE}, needs=("numpy",))
    assert (ours.effect, theirs.effect) == ("repair", "note")
    assert theirs.found == "labs-tool damaged: labs_tool.py"
    assert "left alone" in theirs.action


def test_an_environment_that_is_made_anew_is_not_complained_about() -> None:
    ids = [each.id for each in found(NUMPY, needs=("numpy",), pytorch_python="3.12")]
    assert "pytorch.files-damaged" not in ids
    assert "pytorch.environment-differs" in ids


def commands(reported: dict[str, Any]) -> list[str]:
    """What is done about it, of a host that stays as it is: so the second way is tried too."""
    run = FakeRun(FakeHost(reported=reported), FakeHost(name="ws2")).prepare().execute()
    words = (" pip install ", " cache clean ", "set_aside.sh")
    return [each for each in run.executed("ws1") if any(word in each for word in words)]


def test_it_is_installed_again_in_the_version_that_is_there_and_fetched_if_that_did_not_help() -> (
    None
):
    first, clean, fetched = commands({"torch.damaged_others": NUMPY, "torch.needs": ["numpy"]})
    for command in (first, fetched):
        assert "--no-deps" in command
        assert "--reinstall-package numpy numpy==2.4.6" in command
        assert "--reinstall-package torch" not in command
    assert " cache clean " in clean
    assert clean.rstrip("'").endswith(" numpy")


def test_nothing_is_installed_for_a_users_own() -> None:
    assert commands({"torch.damaged_others": MINE}) == []


def test_metadata_that_lists_no_files_is_out_of_the_way_before_torch_is_installed() -> None:
    """A removal that was cut off leaves it, and uv gives up where it reads it.

    Of torch without a version line uv finds the metadata: it would leave the files as they are.
    """
    reported = {
        "torch.version": None,
        "torch.damaged_others": {"numpy": "numpy-2.4.6.dist-info/RECORD"},
        "torch.needs": ["numpy"],
    }
    aside, install, *_ = commands(reported)
    assert "numpy-2.4.6.dist-info" in aside
    assert "--reinstall-package torch" in install
