"""Runs of the smoke test, shared by the tests that look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.on_host import smoke_runs
from tests.on_host.smoke_runs import Plan, Run


@pytest.fixture
def python() -> str:
    found = smoke_runs.torch_python()
    if found is None:
        pytest.skip(smoke_runs.NO_TORCH)
    return found


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Run]]:
    """Hand out the runs of the module's PLANS by name; those of all selected tests run three at a
    time, for some wait.
    """
    python = smoke_runs.torch_python()
    if python is None:
        pytest.skip(smoke_runs.NO_TORCH)
    plans: dict[str, Plan] = request.module.PLANS

    calls = [getattr(item, "callspec", None) for item in request.session.items]
    named = dict.fromkeys(call.params["plan"] for call in calls if call and "plan" in call.params)
    names = [name for name in named if name in plans]
    # Not in the threads: two that make the first folder at once each make a place for all.
    folders = {name: tmp_path_factory.mktemp("run") for name in names}

    def run(name: str) -> Run:
        return smoke_runs.run(python, folders[name], plans[name])

    with ThreadPoolExecutor(max_workers=3) as pool:
        started = {name: pool.submit(run, name) for name in names}
        yield lambda name: started[name].result()
