"""Wheels beside torch whose files are damaged: which are repaired, how, and which are a user's."""

from __future__ import annotations

from fake_host import DATA, FakeHost, FakeRun

from pyinfra_gpu.drift import pytorch
from pyinfra_gpu.drift.finding import Finding
from pyinfra_gpu.facts.parse import parse

NUMPY, MINE = "numpy numpy/__init__.py", "Labs.Tool labs_tool.py"
WITHOUT_TRAINING: dict[str, object] = {"stack": DATA["stack"], "pytorch_lock": "ignore"}


def found(*damaged: str, needs: tuple[str, ...] = (), **changes: object) -> list[Finding]:
    """What is wrong with a host's environment where distributions are damaged."""
    host = FakeHost(
        data={**WITHOUT_TRAINING, **changes},
        plain={"training.stamp": None},
        lists={
            "torch.other": list(damaged),
            "torch.need": list(needs),
            "torch.distribution": [
                *("torch-2.13.0+cpu.dist-info", "numpy-2.4.6.dist-info"),
                *("Labs_Tool-1.0.dist-info", "sympy-1.14.0.dist-info"),
            ],
        },
    )
    record = parse(host.probe_lines())
    return pytorch.judge(host.spec(), record)


def test_what_torch_needs_is_repaired_and_named_with_its_first_damaged_file() -> None:
    (finding,) = found(NUMPY, "sympy sympy/core.py", needs=("numpy", "sympy", "torch"))
    assert finding.id == "pytorch.files-damaged"
    assert finding.effect == "repair"
    assert finding.found == "numpy damaged: numpy/__init__.py, sympy damaged: sympy/core.py"
    assert finding.action == "reinstall numpy, sympy"


def test_a_users_own_is_told_of_and_left() -> None:
    ours, theirs = found(NUMPY, MINE, needs=("numpy",))
    assert (ours.effect, theirs.effect) == ("repair", "note")
    assert theirs.found == "labs-tool damaged: labs_tool.py"
    assert "left alone" in theirs.action


def test_an_environment_that_is_made_anew_is_not_complained_about() -> None:
    ids = [each.id for each in found(NUMPY, needs=("numpy",), pytorch_python="3.12")]
    assert "pytorch.files-damaged" not in ids
    assert "pytorch.environment-differs" in ids


def test_what_is_no_name_of_a_distribution_is_passed_over() -> None:
    rows = ("--index-url=http://evil x", "; x y", "numpy", " numpy/x")
    assert found(*rows, needs=("--index-url=http://evil", "; x", "numpy", "")) == []


def commands(lists: dict[str, list[str]]) -> list[str]:
    """What is done about it, of a host that stays as it is: so the second way is tried too."""
    run = FakeRun(FakeHost(lists=lists), FakeHost(name="ws2")).prepare().execute()
    words = (" pip install ", " cache clean ", "set_aside.sh")
    return [each for each in run.executed("ws1") if any(word in each for word in words)]


def test_it_is_installed_again_in_the_version_that_is_there_and_fetched_if_that_did_not_help() -> (
    None
):
    first, clean, fetched = commands({"torch.other": [NUMPY], "torch.need": ["numpy"]})
    for command in (first, fetched):
        assert "--no-deps" in command
        assert "--reinstall-package numpy numpy==2.4.6" in command
        assert "--reinstall-package torch" not in command
    assert " cache clean " in clean
    assert clean.rstrip("'").endswith(" numpy")


def test_nothing_is_installed_for_a_users_own() -> None:
    assert commands({"torch.other": [MINE]}) == []


def test_metadata_that_lists_no_files_is_out_of_the_way_before_torch_is_installed() -> None:
    """A removal that was cut off leaves it, and uv gives up where it reads it.

    Of torch without a version line uv finds the metadata: it would leave the files as they are.
    """
    lists = {
        "torch.version_line": [],
        "torch.other": ["numpy numpy-2.4.6.dist-info/RECORD"],
        "torch.need": ["numpy"],
    }
    aside, install, *_ = commands(lists)
    assert "numpy-2.4.6.dist-info" in aside
    assert "--reinstall-package torch" in install
