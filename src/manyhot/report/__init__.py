"""Reports of runs and comparisons: measurements, HTML pages and Markdown."""
