"""Device kinds that need code in addition to a row of the accelerator table, by vendor."""
