"""Usage statistics: hourly totals, reports and prices."""
