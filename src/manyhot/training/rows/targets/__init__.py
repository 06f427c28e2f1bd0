"""What a body is trained on: the objective, and labels that are mixed, softened or taught."""
