"""Runs in forks of a process that has imported everything: those that go on meanwhile."""

from __future__ import annotations

import os
import subprocess

import pytest
from warm import WarmRun, warm_program


def begun(text: str) -> WarmRun:
    return warm_program().start(["python", "-c", text], os.environ)


def test_a_run_goes_on_until_it_is_killed_and_keeps_what_it_printed() -> None:
    run = begun("import time; print('begun', flush=True); time.sleep(60)")
    assert run.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        run.communicate(timeout=0.5)
    run.kill()
    assert run.communicate() == ("begun\n", "")
    assert run.returncode == run.poll() == -9
    run.kill()  # of one that has ended nothing is sent


def test_the_next_run_begins_when_the_one_before_has_ended() -> None:
    first, second = begun("print('one')"), begun("import sys; print('two'); sys.exit(3)")
    assert second.communicate()[0] == "two\n"
    assert (first.poll(), second.returncode) == (0, 3)
    assert first.communicate()[0] == "one\n"
