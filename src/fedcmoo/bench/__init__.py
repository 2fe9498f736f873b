"""Measurements that anyone can repeat: each prints the numbers that the documentation quotes."""
