"""Examples: reading, writing and inspecting files."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
