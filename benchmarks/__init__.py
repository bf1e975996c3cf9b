"""One command for each figure of docs/figures.md: `python -m benchmarks.NAME --help`."""
