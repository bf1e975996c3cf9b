"""`bai model`: models of model stores."""
