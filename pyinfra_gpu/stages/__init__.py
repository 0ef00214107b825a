"""One room per stage: its findings, and the operations that act on them, side by side."""
