"""Tables as examples: columns, features, labels."""
