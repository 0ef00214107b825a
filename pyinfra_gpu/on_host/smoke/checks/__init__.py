"""The checks of the host itself and of each device alone: what they read, and what must be so."""
