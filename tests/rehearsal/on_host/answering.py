"""Answers as the launcher of runs does, in forks of a process that has imported it.

    python -IS answering.py LAUNCHER

A line of its input is what would follow the launcher's name, as JSON. What that prints is followed
by an empty line.
"""

import json
import os
import sys

sys.path.insert(0, sys.argv[1])
from on_host.train import cli

path = sys.argv[1]
for line in sys.stdin:
    child = os.fork()
    if not child:
        sys.argv[:] = [path, *json.loads(line)]
        os._exit(cli.main(sys.argv[1:]))
    os.waitpid(child, 0)
    print(flush=True)
