"""What a run found, changed and could not do, for people and for programs."""

from pyinfra_gpu.report.run import attach, plan

__all__ = ["attach", "plan"]
