"""Reproduction of the paper: every table and figure, with its numbers beside ours and a verdict on every claim."""
