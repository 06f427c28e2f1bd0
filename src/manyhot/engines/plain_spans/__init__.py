"""The reference form of the span grid, in plain torch."""
