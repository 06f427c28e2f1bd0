"""Lazy scores: the output of a head, described by its factors instead of stored."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
