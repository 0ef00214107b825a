"""Hosts without an NVIDIA GPU: the same way, proven over gloo, always labelled as such."""

stack = "cpu-torch2.13"
