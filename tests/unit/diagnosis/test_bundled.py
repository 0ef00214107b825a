"""The catalogue for hosts is made once, and again as soon as anything of it differs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from subprocess import run

import pytest

from pyinfra_gpu import own_cache
from pyinfra_gpu.diagnosis import bundled, catalogue
from pyinfra_gpu.on_host.diagnosis.entries import packed

PRODUCT = Path(bundled.__file__).parents[1]
NEUTRAL = ("errors.py", "text.py", "facts/", "own_cache.py", "whole_file.py")
"""What that code imports, and the result does not follow from: `facts` is for reading a record."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pyinfra-gpu" / "catalogue"


def made() -> bytes:
    return bundled.for_hosts.__wrapped__()


def imported(path: str) -> set[str]:
    """Return the product's modules that a module of it imports, as paths."""
    found = set()
    for node in ast.walk(ast.parse((PRODUCT / path).read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        folder = (PRODUCT / path).parents[node.level - 1] if node.level else PRODUCT.parent
        name = folder.joinpath(*(node.module or "").split("."))
        candidates = [name, *(name / each.name for each in node.names)]
        files = [each.with_suffix(".py") for each in candidates]
        found |= {str(each.relative_to(PRODUCT)) for each in files if each.is_file()}
    return found


def test_it_is_read_once_and_then_kept(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    first = made()
    assert first == packed(catalogue.catalogue())
    assert len([*cache.iterdir()]) == 1
    monkeypatch.setattr(bundled, "_made", lambda: pytest.fail("it was read again"))
    assert made() == first


def test_other_data_is_another_catalogue(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    made()
    texts = catalogue.own_texts()
    monkeypatch.setattr(bundled, "own_texts", lambda: {**texts, "host": texts["host"] + "\n"})
    made()
    assert len([*cache.iterdir()]) == 2


def test_all_code_that_makes_it_is_known() -> None:
    found: set[str] = set()
    left = {"diagnosis/bundled.py", "diagnosis/catalogue.py"}
    while left:
        path = left.pop()
        found.add(path)
        left |= {each for each in imported(path) - found if not each.startswith(NEUTRAL)}
    assert found == set(bundled.CODE)


@pytest.mark.parametrize("content", [b"", b"cut", b"0" * 64 + b"\nother"])
def test_what_is_damaged_is_made_again(cache: Path, content: bytes) -> None:
    first = made()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    assert made() == first
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_fault(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file stands there")
    assert made() == packed(catalogue.catalogue())


def test_only_the_last_few_are_kept(cache: Path) -> None:
    for number in range(9):
        assert own_cache.kept("catalogue", [b"%d" % number], lambda: b"x") == b"x"
    assert len([*cache.iterdir()]) == 4


def test_a_log_is_explained_without_reading_the_data_again(cache: Path) -> None:
    code = (
        "import sys; from pyinfra_gpu.diagnosis.matcher import explain;"
        "explain('No space left on device');"
        " sys.exit('yaml' in sys.modules)"
    )
    started = [run([sys.executable, "-c", code], check=False) for _ in range(2)]
    assert [each.returncode for each in started] == [1, 0]


def test_what_is_read_here_is_what_hosts_get() -> None:
    assert packed(bundled.catalogue()) == packed(catalogue.catalogue())
