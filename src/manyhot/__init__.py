"""manyhot: multi-label learning with the ease of softmax and cross-entropy."""

from manyhot._doors import open_door

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
