"""Device kinds of vendors whose devices a row of the accelerator table cannot fully describe."""
