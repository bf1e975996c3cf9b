"""`bai service`: endpoints of model serving."""
