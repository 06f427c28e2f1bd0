"""Reports: what is measured for a page, the page of a run and of a comparison, and the files they are written to."""
