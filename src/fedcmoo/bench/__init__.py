"""Reproducible benchmarks, which print the numbers quoted in the documentation."""
