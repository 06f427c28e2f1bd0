"""Bodies: prepared inputs to logits."""
