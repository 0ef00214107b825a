"""`pyinfra-gpu lock`: uv resolves what hosts install, and writes it with hashes."""
