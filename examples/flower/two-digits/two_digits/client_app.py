"""The app of every node."""

from fedcmoo.flower import client_app
from two_digits.task import method, problem

app = client_app(problem, method)
