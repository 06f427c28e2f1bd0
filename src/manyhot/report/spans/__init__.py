"""The report of a run on spans."""
