"""Device kinds, one module each; ``base`` defines their interface."""
