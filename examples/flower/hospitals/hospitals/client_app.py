"""The app of every hospital."""

from fedcmoo.flower import client_app
from hospitals.task import method, problem

app = client_app(problem, method)
