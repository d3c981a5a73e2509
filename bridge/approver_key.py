"""The approver's key: a person signs verdicts with it, and whoever holds the run can check that, but sign nothing.

A passphrase becomes an Ed25519 key by scrypt. What is kept is the verifier: the salt and the public half. Nothing that
is stored signs a verdict, so a model that can read files, or use a shell, cannot give one; it can try passphrases on a
verifier that it has read, a quarter of a second each, so a passphrase has to be one that nobody guesses.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from bridge.errors import ConfigurationError, StateError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CHARACTERS: Final = 12  # of a passphrase at least
NOBODY: Final = "sbapprover1.nobody"  # the verifier of no key: no verdict of another process counts
_COST: Final = 1 << 16  # of scrypt: 64 MiB and about a quarter of a second for each passphrase that is tried
_VERIFIER: Final = re.compile(r"sbapprover1\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class ApproverKey:
    """A key that signs verdicts.

    Attributes:
        verifier: What an `Executor` is given (`approver_key=`), and what may be shown to anybody.
    """

    verifier: str
    _private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def make(cls, passphrase: str) -> Self:
        """A new key; the same passphrase gives another one each time.

        Raises:
            ConfigurationError: The passphrase is too short.
        """
        if len(passphrase.strip()) < CHARACTERS:
            raise ConfigurationError(f"a passphrase has at least {CHARACTERS} characters: whoever guesses it approves")
        return cls._of(secrets.token_bytes(16), passphrase)

    @classmethod
    def unlock(cls, verifier: str, passphrase: str) -> Self:
        """The key of a verifier.

        Raises:
            StateError: The passphrase is not the one that it was made with, or there is no such key.
        """
        found = _parts(verifier)
        if found is None:
            raise StateError("there is no approver key: `sandbridge approver-key` makes one")
        key = cls._of(found[0], passphrase)
        if key.verifier != verifier:
            raise StateError("that is not the passphrase of the approver key: nothing was decided")
        return key

    @classmethod
    def _of(cls, salt: bytes, passphrase: str) -> Self:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        given = passphrase.strip().encode("utf-8", "surrogatepass")
        seed = hashlib.scrypt(given, salt=salt, n=_COST, r=8, p=1, maxmem=256 * _COST * 8, dklen=32)
        private = Ed25519PrivateKey.from_private_bytes(seed)
        return cls(f"sbapprover1.{_text(salt)}.{_text(private.public_key().public_bytes_raw())}", private)

    def sign(self, statement: bytes) -> str:
        """A signature of what a verdict says."""
        return _text(self._private.sign(statement))


def check(verifier: str) -> str:
    """The verifier without space around it.

    Raises:
        ConfigurationError: It is none.
    """
    given = verifier.strip()
    if given != NOBODY and _parts(given) is None:
        raise ConfigurationError(
            "an approver key is given as its verifier, the text that `sandbridge approver-key` prints (sbapprover1...)"
        )
    return given


def is_signed(verifier: str, statement: bytes, signature: str) -> bool:
    """Whether whoever has the key has signed this very statement."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _parts(verifier)
    if found is None or not signature:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(found[1]).verify(_bytes(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _parts(verifier: str) -> tuple[bytes, bytes] | None:
    """Salt and public half."""
    found = _VERIFIER.fullmatch(verifier)
    return None if found is None else (_bytes(found[1]), _bytes(found[2]))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii", "replace") + b"=" * (-len(text) % 4))
