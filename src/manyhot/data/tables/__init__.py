"""Tables to examples: columns, features, labels."""
