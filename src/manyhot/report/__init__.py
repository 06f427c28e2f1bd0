"""Reports: measurements, the pages of runs and comparisons, and the files they are written to."""
