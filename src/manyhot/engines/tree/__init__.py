"""Label trees: the problem of a block of children, and the search for the best labels of a row."""
