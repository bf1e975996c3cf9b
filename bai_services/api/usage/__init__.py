"""Usage statistics: reports and prices."""
