"""The loss family: ``(logits, labels)`` in, a loss out."""
