"""HTML of reports: one file, no network, light and dark, tables that a screen reader can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fdfdfb; --line: #d5d2c8; --loss: #a33a25; --win: #14607a;
  --box: #f4f1e6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e0; --paper: #17181a; --line: #3a3b3d; --loss: #f0917c;
  --win: #7cc4dc; --box: #222326; } figure { background: #fdfdfb; color: #1b1b1b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .88rem; }
caption { text-align: left; padding: .3rem 0; } th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line);
  text-align: right; vertical-align: top; } th:first-child, td:first-child { text-align: left; }
thead th { position: sticky; top: 0; background: var(--paper); } .loss { color: var(--loss); font-weight: 600; }
.win { color: var(--win); }
.heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.box { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
  border: 2px solid var(--ink); background: var(--box); padding: .8rem 1.2rem; margin: 1rem 0; }
.box h2 { font-size: 1.05rem; margin: 1rem 0 .4rem; }
p, li { overflow-wrap: anywhere; } .scroll { overflow-x: auto; position: relative; }
figure { margin: 1rem 0; padding: .5rem; } figure svg { max-width: 100%; height: auto; }
summary { cursor: pointer; padding: .3rem 0; } small, .note { opacity: .8; } :focus-visible { outline: 2px solid; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, raw: bool = False) -> str:
    """A table. Cells are escaped unless they are `raw`: then they come from `share`, or are escaped already."""
    show = str if raw else escape
    top = "".join(f'<th scope="col">{escape(each)}</th>' for each in head)
    lines: list[str] = []
    for first, *rest in rows:
        cells = "".join(f"<td>{show(each)}</td>" for each in rest)
        lines.append(f'<tr><th scope="row">{show(first)}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="group" aria-label="{escape(caption)}" tabindex="0">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def heading(text: str) -> str:
    """A section's heading."""
    return f"<h2>{escape(text)}</h2>"


def text(words: str) -> str:
    """A paragraph."""
    return f"<p>{escape(words)}</p>"


def listed(title: str, points: Iterable[str], level: int = 3) -> str:
    """A list under a title, a heading of that level."""
    items = "".join(f"<li>{escape(point)}</li>" for point in points)
    return f"<section><h{level}>{escape(title)}</h{level}><ul>{items}</ul></section>"


def folded(title: str, inner: str) -> str:
    """Something to open."""
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def figure(svg: bytes, about: str) -> str:
    """A plot, inline."""
    drawn = svg.decode("utf-8")
    drawn = drawn[drawn.index("<svg") :]
    return f'<figure role="img" aria-label="{escape(about)}">{drawn}</figure>'


def share(value: float) -> str:
    """A share saved as a cell: `+35.2%`, a loss marked as one, for eyes and for ears."""
    shown = f"{100 * value:+.1f}%"
    if value < 0:
        return f'<span class="loss">{shown}<span class="heard"> (loss)</span></span>'
    return f'<span class="win">{shown}</span>'
