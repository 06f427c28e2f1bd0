"""What is true: label sets, index lists, soft labels."""
