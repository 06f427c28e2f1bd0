"""Models for other software: ONNX, a Hugging Face folder, plain weights, the rule folded into a head."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
