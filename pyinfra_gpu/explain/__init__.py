"""`pyinfra-gpu explain`: a failed run, from its log and its host, to cause and fix."""
