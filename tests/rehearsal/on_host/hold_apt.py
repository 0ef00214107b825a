"""Holds the lock that apt and dpkg take, as somebody at work with apt does, until it is ended."""

import fcntl
import signal
import subprocess

with open("/var/lib/dpkg/lock-frontend", "w") as lock:  # noqa: PTH123 - as apt itself does
    fcntl.lockf(lock, fcntl.LOCK_EX)
    subprocess.run(["systemd-notify", "--ready"], check=True)
    signal.pause()
