"""Builds torch from source on one host: `python3 -I build.pyz run FOLDER`, as the owner.

FOLDER holds `plan.json`, which the controller writes; everything else below it is made here. It
runs as a unit of systemd's, whose journal has all that its programs print. It needs Python 3.9 or
newer, git and ccache, and no package of Python's.
"""
