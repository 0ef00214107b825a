"""A step of a remedy in its two forms."""

from __future__ import annotations

import pytest

from pyinfra_gpu.on_host.diagnosis.entries import Catalogue, Entry, packed, unpacked
from pyinfra_gpu.on_host.diagnosis.patterns import pattern
from pyinfra_gpu.on_host.diagnosis.steps import Step, changes_variables, misread


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("`ls -l {file}`", "`ls -l FILE`"),
        ("Once with {NCCL_DEBUG=WARN}: look", "Once with `NCCL_DEBUG=WARN`: look"),
        ("{export A_B=1 no_proxy=a,b} for it", "`export A_B=1 no_proxy=a,b` for it"),
        ("{unset A B}", "`unset A B`"),
        ("{env | grep -E '^(A|B)_'}", "`env | grep -E '^(A|B)_'`"),
        ('{echo "[$CC]"}', '`echo "[$CC]"`'),
        ("`awk '{print $NF; exit}'`", "`awk '{print $NF; exit}'`"),
        (
            "`--format '{{.Names}} {{.Ports}}'`, ${HOME}",
            "`--format '{{.Names}} {{.Ports}}'`, ${HOME}",
        ),
        ('`{"bf16": {"enabled": true}}`', '`{"bf16": {"enabled": true}}`'),
        ("`find -exec touch {} +`", "`find -exec touch {} +`"),
    ],
)
def test_in_a_shell_it_is_typed_as_it_stands(written: str, read: str) -> None:
    assert Step(written, written).in_shell == read
    assert misread(written) == ""


@pytest.mark.parametrize(
    "written",
    ["{fiel}", "{export A}", "{export A=$HOME}", "{unset A=1}", "{unset a-b}", "{A=a b}", "{env }"],
)
def test_what_looks_like_such_braces_and_is_not_is_named(written: str) -> None:
    assert misread(f"see {written} there") == written


def test_to_look_at_variables_changes_none() -> None:
    assert not changes_variables("{env | grep A}, `export A=1` and {file}")
    assert changes_variables("see {env | grep A}, then {unset A}")


def test_both_forms_travel_to_hosts() -> None:
    fix = (Step("a", "a"), Step("a", "b"), Step("a"), Step(run="b"))
    entry = Entry(id="CUDA-01", kind="root", patterns=(pattern("abcdef"),), cause="c", fix=fix)
    assert unpacked(packed(Catalogue((entry,)))).entries[0].fix == fix
