"""A failed run's logs to one cause, by a catalogue: on the controller, and on hosts alone."""
