"""`bai-hub`: set up, check, back up, restore and upgrade an installation."""
