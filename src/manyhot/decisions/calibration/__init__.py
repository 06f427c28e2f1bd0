"""How a calibration is fitted: the data by blocks, the affine maps and the isotonic one."""
