"""How long what we do on a host may take, before this host is given up: one table.

In seconds, and generous: a deadline here is for a host that hangs, not for one that is slow. What
somebody declares, such as ``look_timeout_s`` or the smoke test's own deadline, is not here.
"""

from __future__ import annotations

PLAIN = 120.0
"""Reads or writes a few small files; also each call that names no deadline of its own."""

SERVICE = 300.0
"""Starts or stops services, asks a package manager about what is installed."""

SIMULATION = 600.0
"""Reads lists of packages, updates them, computes a transaction."""

MODULE = 1800.0
"""Builds a kernel module, makes an initramfs, loads the driver."""

COMPILE = 3600.0
"""Compiles a handful of files and runs them; the compiler has a limit of its own there."""

CLONE = 3600.0
"""Fetches a repository."""

BUILD = 12 * 3600.0
"""Follows a build from source that goes on by itself; when this is over, the next run follows."""

INSTALL = 4 * 3600.0
"""Fetches and unpacks gigabytes, builds modules on the way."""
