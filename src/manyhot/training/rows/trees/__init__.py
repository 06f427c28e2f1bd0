"""Label trees: their shape, their fit, and the cost of a negative."""
