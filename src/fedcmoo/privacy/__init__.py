"""Privacy: clipping, noise, accounting and secure sums.

Needs the extra: pip install "fedcmoo[privacy]".
"""
