"""Federations of nodes on other machines, over any transport that sends packets to nodes and returns their answers."""

from fedcmoo.engines.remote.node import Node
from fedcmoo.engines.remote.nodes import Transport
from fedcmoo.engines.remote.session import Remote, RemoteSession

__all__ = ["Node", "Remote", "RemoteSession", "Transport"]
