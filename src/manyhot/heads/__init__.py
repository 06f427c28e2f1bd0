"""From features to scores; no loss inside."""
