"""What Python does first on a throwaway host, in the system's and in virtual environments."""

import sys

if sys.orig_argv[-1].endswith("/pip_compileall.py"):  # what uv calls its program for that
    import compileall

    import rehearsal_bytecode  # type: ignore[import-not-found]  # beside this file on the host

    compileall.compile_file = rehearsal_bytecode.compile_file
