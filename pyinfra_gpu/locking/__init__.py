"""Writing locks: what hosts install, resolved on the controller, as data with digests."""
