"""What is measured, side by side with others; run as `python -m bench.NAME [--quick] [--json]`."""
