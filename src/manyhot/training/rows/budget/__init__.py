"""Training with a time budget: candidates, their race and their mean."""
