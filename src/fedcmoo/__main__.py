"""Entry point of `python -m fedcmoo`, the command line."""

from fedcmoo.cli import app

app()
