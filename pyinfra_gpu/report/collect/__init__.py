"""What the owner of a host can send to whoever is to help: gathered, masked, and listed first."""
