"""A test that tries to reach another machine fails."""

import ipaddress
import socket
from typing import Any

import pytest


def allow_only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0]
            if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
                raise OSError(f"a test tried to reach {host}: only loopback is allowed")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
