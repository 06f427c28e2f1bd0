"""Training on texts with marked spans."""
