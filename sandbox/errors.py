"""The exceptions of this package, as a tree.

    SandboxError                 everything below; catch this to catch all
    ├── EngineUnavailable        V8 cannot be loaded or does not pass its self-check (operator)
    ├── WallMissing              a wall named in `require=` does not stand (operator)
    ├── SandboxClosed            the sandbox was closed, or is not open yet (developer)
    ├── Overloaded               no room for one more program now; nothing of it was run (operator)
    └── ProtocolError
        ├── LocalProtocolError   we asked for what the state table forbids (a bug on this side)
        └── RemoteProtocolError  the worker sent what no honest worker sends: it is killed

How a program fails is never an exception here: it is an outcome (see `messages.py`).
"""


class SandboxError(Exception):
    """Base of everything that this package raises on purpose."""


class EngineUnavailable(SandboxError):
    """V8 cannot be used on this machine; the text says why and what to do."""


class WallMissing(SandboxError):
    """A required wall does not stand; the text names it, why, and the ways out."""


class SandboxClosed(SandboxError):
    """The sandbox is not open: it was never entered, or it has been left."""


class Overloaded(SandboxError):
    """There is no room for one more program at this moment, and nothing of it was run: try again later.

    The text names what is full: `max_queued` of the sandbox, or something that the machine has no more of.
    """


class ProtocolError(SandboxError):
    """One side of the worker protocol did what its state forbids."""


class LocalProtocolError(ProtocolError):
    """This side did: a bug in Sandbridge or in code that drives a worker by hand."""


class RemoteProtocolError(ProtocolError):
    """The worker did: malformed, oversized or out of order. Treat it as an attack."""
