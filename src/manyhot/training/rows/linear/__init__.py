"""A linear body whose labels are solved one by one, without gradient steps."""
