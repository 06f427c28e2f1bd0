"""Engines for linear scores, which are never stored whole: the problem, the plain form, and fused optimizer updates."""
