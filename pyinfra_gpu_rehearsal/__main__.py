"""`python -m pyinfra_gpu_rehearsal up 2`: the verb `rehearsal` without the other verbs."""

from __future__ import annotations

import argparse

from pyinfra_gpu_rehearsal.cli import run_command

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m pyinfra_gpu_rehearsal")
    raise SystemExit(run_command(parser))
