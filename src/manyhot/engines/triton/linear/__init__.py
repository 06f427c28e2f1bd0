"""Kernels and host side of the linear engine: scores of a head, chunk by chunk."""
