"""The real PyTorch, really built: a part of it, and all of it."""
