"""Public names of ``manyhot.heads`` and where they live."""

from manyhot.heads.global_pointer import EfficientGlobalPointer as EfficientGlobalPointer
from manyhot.heads.global_pointer import GlobalPointer as GlobalPointer
from manyhot.heads.linear import LinearHead as LinearHead
from manyhot.heads.rotary_positions import rotary as rotary
