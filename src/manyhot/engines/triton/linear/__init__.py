"""Kernels and host side of the linear engine, which processes the labels of a head in chunks."""
