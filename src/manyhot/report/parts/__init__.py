"""Parts that every report page is made of."""
