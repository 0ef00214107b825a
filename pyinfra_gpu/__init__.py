"""From bare Linux machines with NVIDIA GPUs to a proven PyTorch training step."""

__version__ = "0.2.0"
