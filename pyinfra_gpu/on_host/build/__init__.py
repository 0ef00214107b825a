"""Builds torch from source on one host: `python3 -I build.pyz run FOLDER`, as the owner.

FOLDER holds `plan.json`, which the controller writes; everything else below it is made here. The
program is detached from whoever started it, keeps what it does in `state.json`, and begins again
where it stopped. It needs no torch and no package, only the host's own Python.
"""
