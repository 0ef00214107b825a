"""A signal ends a run wherever Python happens to be when it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_A_THREAD = """
import os, signal, threading, time
from pyinfra.api import State  # has gevent replace threads, as any program of ours does
from pyinfra_gpu.engine.command_line import ended_by

def asked():
    os.kill(os.getpid(), signal.{name})  # Python runs the handler here, in the thread's greenlet

with ended_by(signal.{name}):
    threading.Thread(target=asked).start()
    time.sleep(60)
print("it went on")
"""


A_DEPLOY = """
import os, signal, sys, time
from pyinfra.api import State
from pyinfra.context import ctx_state
from pyinfra_gpu.engine import command_line
{before}
sys.argv = ["pyinfra"]
command_line.begin()
with ctx_state.use(State()):
    os.kill(os.getpid(), signal.{name})
    time.sleep(0.1)
print("it went on")
"""


def ran(code: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    return done.returncode, done.stdout, done.stderr


SIGNALS = pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


@SIGNALS
def test_it_ends_the_main_program_though_a_thread_was_interrupted(ending: signal.Signals) -> None:
    code = IN_A_THREAD.format(name=ending.name)
    assert ran(code) == (128 + ending, "", "interrupted\n")


@SIGNALS
def test_a_deploy_says_that_hosts_go_on_whatever_ends_it(ending: signal.Signals) -> None:
    code, printed, said = ran(A_DEPLOY.format(name=ending.name, before=""))
    assert (code, printed) == (128 + ending, "")
    assert "a command that was begun goes on on its host" in said


def test_a_deploy_under_nohup_goes_on() -> None:
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert ran(A_DEPLOY.format(name="SIGHUP", before=ignored)) == (0, "it went on\n", "")
