"""Training on rows: texts, tables, pictures."""
