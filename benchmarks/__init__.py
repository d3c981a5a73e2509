"""What this project costs, beside what a user would pick instead: `python benchmarks/speed.py` and `soak.py`."""
