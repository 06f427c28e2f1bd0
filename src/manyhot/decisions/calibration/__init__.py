"""Fits of calibrations: the data in blocks, the affine maps and the isotonic map."""
