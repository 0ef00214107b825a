"""What Python does first on a throwaway host, in the system's and in virtual environments."""

import sys

# What uv calls its program for that; pip; and ensurepip, which has it run by a text of Python.
if sys.orig_argv[-1].endswith("/pip_compileall.py") or (
    sys.orig_argv[-2:-1] == ["-c"] and 'run_module("pip"' in sys.orig_argv[-1]
):
    import compileall

    import rehearsal_bytecode  # type: ignore[import-not-found]  # beside this file on the host

    compileall.compile_file = rehearsal_bytecode.compile_file
