"""REST resources of model serving, for users and for gateways."""
