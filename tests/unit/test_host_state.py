"""What two moments of a host are compared by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host_state import HostState, differences, settle


class Host(SimpleNamespace):
    """A host made of folders: what lies merged, its layers, and what runs on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder=folder, upper=folder / "up", said="")
        for name in ("own", "base", "up", "merged", "snapshots/one/up"):
            (folder / name).mkdir(parents=True)
        (folder / "lower").write_text("snapshots/one/up:")

    def write(self, layer: str, name: str, text: str) -> None:
        for top in (layer, "merged"):
            path = self.folder / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(stdout=self.said)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a host with a file in each of its layers."""
    made = Host(tmp_path)
    monkeypatch.setattr("host_state.root_of", lambda _: tmp_path / "merged")
    made.write("base", "etc/bare", "as it was")
    made.write("snapshots/one/up", "etc/kept", "one\n")
    made.write("up", "etc/new", "one\ntwo\n")
    made.said = "module nvidia 580\nunit ssh.service\nunit user@1000.service\nprocess (sd-pam)\n"
    return made


def test_a_state_names_what_was_written_and_what_is_in_memory_but_no_logins(host: Any) -> None:
    host.write("up", "tmp/any", "passing")
    state = HostState.of(host)
    assert set(state.files) == {"etc", "etc/kept", "etc/new"}
    assert state.memory == {"module nvidia 580", "unit ssh.service"}
    assert state.modules() == {"module nvidia 580"}
    assert HostState.read(state.told()) == state


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda host: host.write("up", "etc/new", "one\ntwo?\n"), ["etc/new"]),
        (lambda host: host.write("up", "etc/bare", "as it is"), ["etc/bare"]),
        (lambda host: host.write("up", "etc/bare", "as it was"), []),
        (lambda host: host.write("up", "etc/more", ""), ["etc/more"]),
        (lambda host: (host.folder / "merged/etc/new").chmod(0o600), ["etc/new"]),
        (lambda host: (host.folder / "merged/etc/kept").unlink(), ["etc/kept"]),
        (lambda host: setattr(host, "said", host.said + "process apt\n"), ["process apt"]),
    ],
)
def test_whatever_differs_is_named(
    host: Any, change: Callable[[Any], None], seen: list[str]
) -> None:
    before = HostState.of(host)
    change(host)
    assert list(differences(before, HostState.of(host), host)) == seen


def test_a_folder_that_is_made_where_it_is_missing_is_no_difference_and_what_is_in_it_is(
    host: Any,
) -> None:
    states = [HostState.of(host)]
    (host.folder / "merged/var/lib/pyinfra-gpu").mkdir(parents=True)
    (host.folder / "up/var/lib/pyinfra-gpu").mkdir(parents=True)
    (host.folder / "base/var/lib").mkdir(parents=True)
    states.append(HostState.of(host))
    host.write("up", "var/lib/pyinfra-gpu/reboots", "1 of nouveau\n")
    states.append(HostState.of(host))
    assert list(differences(*states[:2], host)) == []
    assert list(differences(*states[1:], host)) == ["var/lib/pyinfra-gpu/reboots"]


def test_what_uv_unpacks_below_a_random_name_is_seen_by_the_links_to_it(host: Any) -> None:
    states = []
    for name in ("aB-3_x", "9iFLIr"):
        host.write("up", f"opt/cache/archive-v0/{name}/torch.py", "")
        host.write("up", f"opt/cache/.tmp{name[:2]}c4D5/half", "")
        host.write("up", f"var/lib/pyinfra-gpu-apt.{name[:2]}c4D5/guard", "")
        host.write("up", "opt/cache/pyinfra-gpu-meanwhile.log", name)
        for top in ("up", "merged"):
            link = host.folder / top / "opt/cache/torch"
            link.unlink(missing_ok=True)
            link.symlink_to(f"/opt/cache/archive-v0/{name}")
        states.append(HostState.of(host))
    assert {"opt/cache", "opt/cache/torch"} <= set(states[0].files)
    assert list(differences(*states, host)) == []


@pytest.mark.parametrize(
    ("text", "seen"), [("1\n2\n", []), ("1\n2\n3\n", ["etc/new"]), (None, ["etc/new"])]
)
def test_of_what_varies_only_the_content_is_passed_over(
    host: Any, text: str | None, seen: list[str]
) -> None:
    before = HostState.of(host)
    if text is None:
        (host.folder / "merged/etc/new").unlink()
    else:
        host.write("up", "etc/new", text)
    assert list(differences(before, HostState.of(host), host, frozenset({"etc/new"}))) == seen


def test_what_works_beside_a_run_is_waited_for_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    codes = iter([0, 0, 1])

    def run(command: str, **_: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(returncode=next(codes, 0))

    host: Any = SimpleNamespace(run=run)
    assert settle(host) > 0
    assert len(asked) == 3
    monkeypatch.setattr("host_state.PATIENCE_S", 0)
    with pytest.raises(TimeoutError, match="did not end within 0 s"):
        settle(host)
