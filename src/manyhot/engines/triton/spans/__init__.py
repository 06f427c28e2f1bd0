"""Triton kernels over span grids."""
