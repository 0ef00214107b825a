"""Has a smoke test's launcher on a throwaway host import torch once, for all that it starts.

sitecustomize begins it in that process alone, see forking.py. What the launcher starts are forks of
it (`preloaded_server`), so four imports of torch are one.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import preloaded_server

NOT_COMPILED = "--no-compile"
ACROSS_HOSTS = "--hosts"  # a step across hosts compiles nothing


def begin(modules: Sequence[str]) -> None:
    """Import the modules in the environment that ranks have; fork from now on.

    Does nothing where ranks compile, and where the import fails: then all is started for real.
    """
    bundle, words = sys.orig_argv[1], sys.orig_argv[2:]
    if NOT_COMPILED not in words and ACROSS_HOSTS not in words:
        return
    own, path = dict(os.environ), sys.path[:]
    try:
        sys.path.insert(0, bundle)
        from smoke.environment import for_cpu

        sys.path[:] = path
        forget("smoke")  # the bundle's own start imports it again
        changed = for_cpu(own)
        if NOT_COMPILED in words:
            changed["TORCHDYNAMO_DISABLE"] = "1"
        os.environ.clear()
        os.environ.update(changed)
        preloaded_server.preload(modules)
        preloaded_server.Popen.fresh = preloaded_server.Fresh(path=tuple(path))
    except Exception:
        sys.path[:] = path
        forget("smoke")
        forget("torch")
        subprocess.Popen = preloaded_server.Popen.__base__  # type: ignore[misc, assignment]
    finally:
        os.environ.clear()
        os.environ.update(own)


def forget(package: str) -> None:
    """Let a package be imported anew."""
    for name in [*sys.modules]:
        if name.partition(".")[0] == package:
            del sys.modules[name]
