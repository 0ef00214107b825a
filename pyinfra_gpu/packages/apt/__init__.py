"""Apt and dpkg: what Debian, Ubuntu and what is made from them install packages with."""
