"""Engines: who computes the two sides and their gradient. Imported by losses and scores alone."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
