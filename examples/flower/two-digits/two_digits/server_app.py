"""The app of the server."""

from fedcmoo.flower import server_app
from two_digits.task import method, problem

app = server_app(problem, method)
