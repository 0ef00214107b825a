"""Failure text to cause and fix: reviewed data (`catalogue/`) and a small matcher."""
