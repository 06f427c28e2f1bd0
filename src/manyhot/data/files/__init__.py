"""Files as they come: opened, decompressed, bounded, and what can be wrong with them."""
