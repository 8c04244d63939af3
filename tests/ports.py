"""Ports for servers that cannot say which one they took."""

from __future__ import annotations

from deploy.kafka.kafka import free_ports


def free_port() -> int:
    """One that was free a moment ago, and that no outgoing connection gets before it is listened on."""
    (port,) = free_ports(1)
    return port
