"""S6, a step across hosts: the ordinary test, of which each host runs some of the ranks.

torchrun's store, which the first host serves, is the only meeting. Beside torchrun on each host
works an `Exchange`, which gives what is written down here to the other hosts: so the launcher of
each host follows the ranks of all, and judges them by itself.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from . import listening
from .options import Across, Options

MEASURE = ("collectives", "step")
SILENT_S = 30.0
"""After so many seconds without a word a host is taken for lost."""
_MEETING_S = 60
_FAREWELL_S = 40.0
_TURN_S = 0.3


def meeting_s(options: Options) -> int:
    """Return in how many seconds a host must have reached the first one's store."""
    return min(_MEETING_S, options.deadline // 3)


def rendezvous(options: Options, asked: Across) -> tuple[list[str], dict[str, str | None]]:
    """Return torchrun's arguments for the meeting, and the variables for what ranks send."""
    is_first = options.host == next(iter(asked.hosts))
    local = asked.address if is_first else listening.seen_by(asked.address)
    shown = f"[{asked.address}]" if ":" in asked.address else asked.address
    seconds = meeting_s(options)
    arguments = [
        *("--nnodes", str(len(asked.hosts)), "--rdzv-id", str(options.fingerprint)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{shown}:{asked.port}"),
        *("--local-addr", local, "--rdzv-conf"),
        f"is_host={is_first},join_timeout={seconds},read_timeout={seconds}",
    ]
    interface = listening.interface_of(local)
    return arguments, {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


# -- the exchange of what is written down


def folder_of(directory: Path, number: int) -> Path:
    """Return where the journals of the host of this number are, of those of other hosts."""
    return directory / f"host{number}"


def silent_s(directory: Path, number: int) -> float:
    """Return for how many seconds another host has told nothing."""
    return time.monotonic() - (folder_of(directory, number) / "heard").stat().st_mtime


class Exchange:
    """Gives this host's journals to the other hosts, and keeps theirs, until all have ended.

    Whatever goes wrong with it, it only ends: that nothing is heard says enough.
    """

    def __init__(
        self, directory: Path, address: str, port: int, number: int, seconds: int, hosts: int
    ) -> None:
        """Reach the first host's store; on the first host, serve it. Raises torch's RuntimeError.

        + number: of this host, the first is 0; hosts: how many there are
        + seconds: for reaching the store
        """
        from torch import distributed

        limit = timedelta(seconds=seconds)
        # torchrun's own server at this port is then the same one, and stays for as long as this.
        how: dict[str, Any] = {"multi_tenant": True, "wait_for_workers": False, "timeout": limit}
        store: Any = getattr(distributed, "TCPStore")  # noqa: B009 - torch's types lack it
        self._store = store(address, port, is_master=number == 0, **how)
        self._directory, self._number, self._hosts = directory, number, hosts
        self._turns, self._ended, self._told = itertools.count(), False, 0
        self._heard: dict[int, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until each host has told all; the first one, which serves the store, goes last."""
        self._ended = True
        self._thread.join(_FAREWELL_S)

    def _work(self) -> None:
        with suppress(RuntimeError, OSError, ValueError):
            while not self._all_told():
                self._turn()
                time.sleep(_TURN_S)

    def _all_told(self) -> bool:
        """Whether all have ended and know it of each other; who never came is not waited for."""
        return self._told == 2 and (self._number > 0 or min(self._stages(), default=2) == 2)

    def _stages(self) -> list[int]:
        return [told["stage"] for told in self._heard.values()]

    def _turn(self) -> None:
        stage = 0 if not self._ended else 2 if min(self._stages(), default=2) else 1
        mine = {path.name: path.read_text() for path in self._directory.glob("*.jsonl")}
        told = {"turn": next(self._turns), "stage": stage, "journals": mine}
        self._store.set(f"smoke/{self._number}", json.dumps(told))
        self._told = stage
        for number in set(range(self._hosts)) - {self._number}:
            key = f"smoke/{number}"
            heard = json.loads(self._store.get(key)) if self._store.check([key]) else None
            if heard and heard != self._heard.get(number):
                self._heard[number] = heard
                self._keep(folder_of(self._directory, number), heard["journals"])

    def _keep(self, folder: Path, journals: dict[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        heard = folder / "heard"
        heard.touch()
        os.utime(heard, ns=(time.monotonic_ns(),) * 2)  # a clock that nobody sets
        for name, text in journals.items():
            (folder / Path(name).name).write_text(text)
