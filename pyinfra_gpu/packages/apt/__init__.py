"""Apt, as pure functions: what its transactions would do, whether they may, and files for it."""
