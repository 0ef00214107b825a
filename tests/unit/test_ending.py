"""A signal ends a run wherever Python happens to be when it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_A_THREAD = """
import os, signal, threading, time
from pyinfra.api import State  # has gevent replace threads, as any program of ours does
from pyinfra_gpu.engine.ending import ended_by

def asked():
    os.kill(os.getpid(), signal.{name})  # Python runs the handler here, in the thread's greenlet

with ended_by(signal.{name}):
    threading.Thread(target=asked).start()
    time.sleep(60)
print("it went on")
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_the_main_program_though_a_thread_was_interrupted(ending: signal.Signals) -> None:
    code = IN_A_THREAD.format(name=ending.name)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (128 + ending, ""), done
    assert done.stderr == "interrupted\n"
