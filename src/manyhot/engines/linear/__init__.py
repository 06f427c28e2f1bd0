"""Losses over the scores of a linear head that are never stored whole: the problem, the plain form, the updates."""
