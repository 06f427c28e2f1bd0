"""The code that all losses share: the primitive, its forms, the reduction, and the choice of an engine."""
