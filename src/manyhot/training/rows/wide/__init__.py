"""The fit of a body for very many labels on a device."""
