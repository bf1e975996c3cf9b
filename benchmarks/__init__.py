"""The benchmarks of docs/figures.md: `python -m benchmarks.NAME`."""
