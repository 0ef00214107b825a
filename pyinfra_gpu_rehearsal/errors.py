"""The one error a user of the throwaway hosts sees."""

from __future__ import annotations

from pyinfra.api.exceptions import PyinfraError


class LabError(PyinfraError):
    """One sentence saying what cannot be done with the throwaway hosts, why, and the remedy.

    It is a PyinfraError so that an inventory file that raises it ends pyinfra with the sentence
    alone and not with a traceback.
    """
