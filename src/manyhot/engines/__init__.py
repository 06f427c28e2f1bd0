"""Engines: who computes the two sides and their gradient. Imported by losses and scores alone."""
