"""Apt: what it is asked, what it answers, and what a transaction of it may do."""
