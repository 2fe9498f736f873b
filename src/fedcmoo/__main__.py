"""`python -m fedcmoo` is the command line."""

from fedcmoo.cli import app

app()
