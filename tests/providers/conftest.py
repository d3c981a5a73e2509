"""One sandbox for all tests of a module on each event loop, as in tests/bridge."""

from tests.bridge.conftest import opened

__all__ = ["opened"]
