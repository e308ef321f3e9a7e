"""Published wheels rewritten with the series and the overlay applied."""
