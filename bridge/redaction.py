"""Secrets out of a journal, by rule, before it is written anywhere.

A rule finds a secret by the name of its key, or by how it looks. What was found is then replaced everywhere in the
journal by the same stand-in, also where no rule would find it: a program that hands a token on still makes, in replay,
the calls that were recorded. What only its program computes from a secret, nothing here can find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from bridge.errors import ConfigurationError, StateError

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
KEYS: Final = frozenset(
    # The last words of a key's name, joined: `X-Api-Key`, `apiKey` and `service_api_key` all end with `apikey`.
    "authorization password passwd passphrase pwd secret token apikey apitoken privatekey secretkey accesskey "
    "signingkey encryptionkey credential credentials cookie sessionid otp pin cvv cvc".split()
)
PATTERNS: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    r"\b(?:[Bb]earer|[Bb]asic|[Tt]oken)\s+([A-Za-z0-9._~+/=-]{12,})",
    r"\b[a-z][a-z0-9+.-]*://[^\s/@:]+:([^\s/@]+)@",  # the password of a URL
    r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON Web Tokens
    r"\bsk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic and those who took up their form
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS
    r"\bAIza[A-Za-z0-9_-]{30,}",  # Google
    r"\b(?:sk|rk|pk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}",  # Stripe
    r"\b(?:hf|npm)_[A-Za-z0-9]{20,}",
    r"\bpypi-[A-Za-z0-9_-]{16,}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
)
STAND_IN: Final = re.compile(r"\[redacted \d+\]")
_SHORT, _WORD = 4, 8  # characters: a shorter secret is replaced only where it is the whole text, or a whole word
# Where in a record data stands that somebody else wrote, and where text: the rest is the journal's own.
_DATA: Final = frozenset(("inputs", "arguments", "checked", "value", "details"))
_TEXT: Final = frozenset(("program", "message", "reason", "text", "hint"))


@dataclass(frozen=True, kw_only=True)
class Redaction:
    """Rules.

    Args:
        keys: Further names of keys whose values are secrets; case and separators do not count.
        patterns: Further regular expressions of secrets in any text; with a group, the group is the secret.
        known: Secrets themselves, such as those of the environment.
        off: Nothing is redacted, whatever the rules say.

    Raises:
        ConfigurationError: A pattern that is none.
    """

    keys: Sequence[str] = ()
    patterns: Sequence[str] = ()
    known: Sequence[str] = ()
    off: bool = False

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigurationError(f"{pattern!r} is no regular expression: {error}") from None

    def apply(self, lines: Iterable[bytes]) -> tuple[list[bytes], int]:
        """The lines of a journal without their secrets, and how many different ones there were.

        A line without any is the same, byte for byte.

        Raises:
            StateError: A line is no JSON.
        """
        given = list(lines)
        if self.off:
            return given, 0
        records = [_parsed(line, number) for number, line in enumerate(given, 1)]
        found = _Finder(self)
        for record in records:
            _walk(record, found.data, found.text)
        if not found.secrets:
            return given, 0
        replace = _Replacer(found)
        made: list[bytes] = []
        for line, record in zip(given, records, strict=True):
            changed = _walk(record, replace.data, replace.text)
            made.append(line if changed == record else _written(changed))
        return made, len(found.secrets)


def is_secret_key(name: str, more: Iterable[str] = ()) -> bool:
    """Whether the value under a key of this name is taken to be a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    endings = {"".join(words[-count:]) for count in (1, 2) if words[-count:]}
    return not KEYS.isdisjoint(endings) or "".join(words) in {_squeezed(key) for key in more}


def _squeezed(name: str) -> str:
    return "".join(word.lower() for word in _WORDS.findall(name))


class _Finder:
    """Collects secrets; changes nothing."""

    def __init__(self, rules: Redaction) -> None:
        self.secrets: dict[Any, str] = {}  # and their stand-ins, in order of appearance
        self.patterns = [re.compile(pattern) for pattern in (*PATTERNS, *rules.patterns)]
        self._keys = rules.keys
        self._known = rules.known

    def data(self, value: Any, *, secret: bool = False) -> Any:
        if isinstance(value, Mapping):
            for key, part in cast("Mapping[str, Any]", value).items():
                self.text(key)
                self.data(part, secret=secret or is_secret_key(key, self._keys))
        elif isinstance(value, list):
            for part in cast("list[Any]", value):
                self.data(part, secret=secret)
        elif isinstance(value, str):
            if secret:
                self._take(re.sub(r"^(?:[Bb]earer|[Bb]asic|[Tt]oken)\s+", "", value))
            self.text(value)
        elif secret and isinstance(value, (int, float)) and not isinstance(value, bool):
            self._take(value)
        return cast("Any", value)

    def text(self, text: str) -> str:
        for known in self._known:
            if known and known in text:
                self._take(known)
        for pattern in self.patterns:
            for match in pattern.finditer(text):
                self._take(match[_group(match)])
        return text

    def _take(self, secret: Any) -> None:
        if secret not in ("", 0) and not (isinstance(secret, str) and STAND_IN.fullmatch(secret)):
            self.secrets.setdefault(secret, f"[redacted {len(self.secrets) + 1}]")


class _Replacer:
    """Puts stand-ins in place of secrets."""

    def __init__(self, found: _Finder) -> None:
        self._whole = found.secrets
        self._patterns = found.patterns
        texts = sorted((each for each in found.secrets if isinstance(each, str)), key=len, reverse=True)
        parts = [
            re.escape(each) if len(each) >= _WORD else rf"\b{re.escape(each)}\b"
            for each in texts
            if len(each) >= _SHORT
        ]
        self._parts = re.compile("|".join(parts)) if parts else None

    def data(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            given = cast("Mapping[str, Any]", value)
            return {self.text(key): self.data(part) for key, part in given.items()}
        if isinstance(value, list):
            return [self.data(part) for part in cast("list[Any]", value)]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value in self._whole:
            return 0  # still a number: the program may compute with it
        return value

    def text(self, text: str) -> str:
        if text in self._whole:
            return self._whole[text]
        for pattern in self._patterns:  # what a pattern finds goes, however short it is
            text = pattern.sub(self._without, text)
        return self._parts.sub(lambda found: self._whole[found[0]], text) if self._parts is not None else text

    def _without(self, match: re.Match[str]) -> str:
        start, end = (place - match.start() for place in match.span(_group(match)))
        stand_in = self._whole.get(match[_group(match)], match[_group(match)])
        return f"{match[0][:start]}{stand_in}{match[0][end:]}"


def _group(match: re.Match[str]) -> int:
    """Which group is the secret: the first, if there is one and it took part."""
    return 1 if match.re.groups and match[1] else 0


def _walk(record: Any, data: Callable[[Any], Any], text: Callable[[str], str]) -> Any:
    """A record of a journal with `data` and `text` applied to what somebody else wrote."""
    if isinstance(record, list):
        return [_walk(part, data, text) for part in cast("list[Any]", record)]
    if not isinstance(record, dict):
        return record
    made: dict[str, Any] = {}
    for key, part in cast("dict[str, Any]", record).items():
        if key in _DATA:
            made[key] = data(part)
        elif key in _TEXT:
            made[key] = [text(each) for each in cast("list[str]", part)] if isinstance(part, list) else text(part)
        else:
            made[key] = _walk(part, data, text)
    return made


def _parsed(line: bytes, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StateError(f"record {number} of the journal cannot be redacted: {error}") from None


def _written(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
