"""Decision rules of a run: fitted, learned or tracked while training."""
