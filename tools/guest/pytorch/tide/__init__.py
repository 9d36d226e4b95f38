"""tide for PyTorch: AdamW with its states in a memory budget or on NVMe."""

from .library import Error
from .optimizer import AdamW

__all__ = ["AdamW", "Error"]
