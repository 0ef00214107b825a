"""What operations stand on."""
