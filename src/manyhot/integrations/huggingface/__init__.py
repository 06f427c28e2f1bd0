"""manyhot in Hugging Face's ``Trainer``: loss, collators, metrics, folded rules, bundles and span models."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
