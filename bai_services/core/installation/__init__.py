"""Settings of an installation, and the files that are generated from them."""
