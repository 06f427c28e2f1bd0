"""Heads: modules that turn features into scores."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
