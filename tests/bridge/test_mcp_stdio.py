"""How the stdout of a server is cut into lines, whatever it writes and however it arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.mcp.over_stdio import _Lines
from bridge.mcp.wire import EDGE_BYTES

CHUNKS = st.lists(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"c" * 30]), max_size=6).map(b"".join), max_size=12)


@given(CHUNKS)
def test_lines_do_not_depend_on_how_the_stream_was_split(chunks: list[bytes]) -> None:
    lines, found = _Lines(limit=50), list[tuple[bytes, bytes | None]]()
    for chunk in chunks:
        found.extend(lines.add(chunk))
    whole = b"".join(chunks).split(b"\n")[:-1]
    assert [(line, tail is None) for line, tail in found] == [
        (line, True) if len(line) <= 50 else (line[:EDGE_BYTES], False) for line in whole
    ]


def test_of_a_line_over_the_limit_both_ends_are_kept_and_nothing_else() -> None:
    lines = _Lines(limit=1_000)
    lines.add(b"head")
    for _ in range(50):
        lines.add(b"x" * 1_000)
        assert sum(map(len, lines._parts)) <= 1_000 + 2 * EDGE_BYTES
    ((head, tail),) = lines.add(b"tail\n")
    assert head == b"head" + b"x" * (EDGE_BYTES - 4)
    assert tail == b"x" * (EDGE_BYTES - 4) + b"tail"
