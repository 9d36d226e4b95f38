"""tide for PyTorch: AdamW with its states in a memory budget or on NVMe, and a store of tensors."""

from .blocks import Blocks
from .library import Error
from .optimizer import AdamW

__all__ = ["AdamW", "Blocks", "Error"]
