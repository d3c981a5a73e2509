"""What a program has put out so far, wave by wave, and whether a worker kept to its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sandbox import Image, Limits, Log, Notice, Wave

KEPT_NOTICES: Final = 200
_PIECE_BYTES: Final = 128  # beside its text: objects, and the record that it came in


@dataclass
class Output:
    """Text, pictures, console lines and warnings of one run, in order."""

    emitted: list[str] = field(default_factory=list[str])
    images: list[Image] = field(default_factory=list[Image])
    logs: list[Log] = field(default_factory=list[Log])
    dropped_logs: int = 0
    notices: list[Notice] = field(default_factory=list[Notice])
    _bytes: int = 0
    _logged: int = 0

    @property
    def nothing(self) -> bool:
        """Whether the program has shown nothing at all."""
        return not (self.emitted or self.images or self.logs)

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        pieces = len(self.emitted) + len(self.images) + len(self.logs) + len(self.notices)
        return 2 * self._bytes + self._logged + _PIECE_BYTES * pieces  # what is shown stands in the result as well

    def take(self, wave: Wave, limits: Limits) -> bool:
        """Take in what a wave brought; False when it is more than an honest worker lets through."""
        self.emitted += wave.text
        self.images += wave.images
        self.logs += wave.logs
        self.dropped_logs = wave.dropped_logs or self.dropped_logs
        self.notices += wave.warnings[: max(0, KEPT_NOTICES - len(self.notices))]
        self._bytes += sum(map(len, wave.text)) + sum(len(image.data) for image in wave.images)
        self._logged += sum(len(line.message) for line in wave.logs)
        return self._bytes <= limits.value_bytes and self._logged <= limits.log_bytes
