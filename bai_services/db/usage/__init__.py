"""Usage statistics: records, hourly and daily totals, reports and prices."""
