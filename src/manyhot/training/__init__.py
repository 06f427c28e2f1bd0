"""Examples to a trained model: settings, input preparation, bodies, the loop, checkpoints and the bundle that is saved."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
