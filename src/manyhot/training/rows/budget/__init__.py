"""A budget of time: candidates, their race and their mean."""
