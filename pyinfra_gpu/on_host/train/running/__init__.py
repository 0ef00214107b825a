"""The supervisor: the one process that lives as long as a run, and by whose end the run ends."""
