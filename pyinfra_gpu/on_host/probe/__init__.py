"""The look at a host: programs that are sent as one, read what is there, and write nothing."""
