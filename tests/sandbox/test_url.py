"""URL and URLSearchParams against the URL Standard: expectations were derived from its text.

`tests/data/urls.jsonl` has a row per case: input, base or null, and the expected href, or null where parsing fails.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from .plain_v8 import PlainV8

DATA = Path(__file__).parents[1] / "data"
URLS: list[list[str | None]] = [json.loads(line) for line in (DATA / "urls.jsonl").read_text("ascii").splitlines()]
HREFS = """(rows) => rows.map(([input, base]) => {
  try { return (base === null ? new URL(input) : new URL(input, base)).href; }
  catch (e) { return e instanceof TypeError ? null : String(e); }
})"""


@pytest.fixture(scope="module")
def v8() -> Iterator[PlainV8]:
    with PlainV8() as plain:
        yield plain


@pytest.fixture(scope="module")
def hrefs(v8: PlainV8) -> list[str | None]:
    return v8(HREFS, URLS)


@pytest.mark.parametrize("index", range(len(URLS)), ids=lambda i: f"{URLS[i][0]!a} on {URLS[i][1]!a}"[:80])
def test_a_url_is_parsed_as_the_standard_says(hrefs: list[str | None], index: int) -> None:
    assert hrefs[index] == URLS[index][2]


def test_a_parsed_url_is_its_own_parse(v8: PlainV8) -> None:
    fine = [[row[2], None] for row in URLS if row[2] is not None]
    assert v8(HREFS, fine) == [row[0] for row in fine]


def test_can_parse_and_parse_agree_with_the_constructor(v8: PlainV8) -> None:
    both = """(rows) => rows.map(([input, base]) => {
      const given = base === null ? [input] : [input, base];
      return [URL.canParse(...given), URL.parse(...given)?.href ?? null];
    })"""
    assert v8(both, URLS) == [[row[2] is not None, row[2]] for row in URLS]


def test_a_url_has_all_its_parts(v8: PlainV8) -> None:
    parts = """() => {
      const u = new URL('https://user:pa%20ss@Example.com:8080/a/b?x=1&y=2#top');
      return [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search,
        u.hash, String(u), JSON.stringify({ u }), Object.prototype.toString.call(u)];
    }"""
    href = "https://user:pa%20ss@example.com:8080/a/b?x=1&y=2#top"
    assert v8(parts) == [
        href, "https://example.com:8080", "https:", "user", "pa%20ss", "example.com:8080", "example.com", "8080",
        "/a/b", "?x=1&y=2", "#top", href, json.dumps({"u": href}, separators=(",", ":")), "[object URL]",
    ]  # fmt: skip


def test_only_network_schemes_and_blobs_of_theirs_have_an_origin(v8: PlainV8) -> None:
    origins = {
        "http://h:80/x": "http://h",
        "ws://h:81": "ws://h:81",
        "ftp://u@h": "ftp://h",
        "file:///x": "null",
        "foo://h": "null",
        "data:x": "null",
        "blob:https://h/id": "https://h",
        "blob:foo://h": "null",
        "blob:x": "null",
    }
    assert v8("(urls) => urls.map((url) => new URL(url).origin)", list(origins)) == list(origins.values())


SETTERS = [
    ("http://h:443/", "protocol", "https", "https://h/"),
    ("http://h/", "protocol", "HTTPS:ignored", "https://h/"),
    ("http://h/", "protocol", "foo", "http://h/"),
    ("foo://h/", "protocol", "http", "foo://h/"),
    ("foo://h/", "protocol", "b-1+.", "b-1+.://h/"),
    ("http://u@h/", "protocol", "file", "http://u@h/"),
    ("http://h:8/", "protocol", "file", "http://h:8/"),
    ("file:///x", "protocol", "http", "file:///x"),
    ("file://h/x", "protocol", "http", "http://h/x"),
    ("http://h/", "protocol", "1x", "http://h/"),
    ("http://h/", "protocol", "", "http://h/"),
    ("http://h/", "username", "a:b@é", "http://a%3Ab%40%C3%A9@h/"),
    ("http://u:p@h/", "username", "", "http://:p@h/"),
    ("file://h/", "username", "u", "file://h/"),
    ("mailto:x", "username", "u", "mailto:x"),
    ("foo:///x", "password", "p", "foo:///x"),
    ("http://h/", "password", "p", "http://:p@h/"),
    ("http://:p@h/", "password", "", "http://h/"),
    ("http://h:1/p", "host", "g", "http://g:1/p"),
    ("http://h:1/p", "host", "g:80", "http://g/p"),
    ("http://h/p", "host", "g:81x", "http://g:81/p"),
    ("http://h/p", "host", "g:x", "http://g/p"),
    ("http://h/p", "host", "g:70000", "http://g/p"),
    ("http://h/p", "host", ":81", "http://h/p"),
    ("http://h/p", "host", "g/other?x#y", "http://g/p"),
    ("http://h/p", "host", "g\\other", "http://g/p"),
    ("http://h/p", "host", "", "http://h/p"),
    ("http://h/p", "host", "a b", "http://h/p"),
    ("http://h/p", "host", "[::0:1]:8", "http://[::1]:8/p"),
    ("http://h/p", "host", "0x7f.1", "http://127.0.0.1/p"),
    ("foo://u@h/p", "host", "", "foo://u@h/p"),
    ("foo://h/p", "host", "", "foo:///p"),
    ("foo:/p", "host", "h", "foo://h/p"),
    ("foo:/.//p", "host", "h", "foo://h//p"),
    ("mailto:x", "host", "h", "mailto:x"),
    ("file:///p", "host", "localhost", "file:///p"),
    ("file:///p", "host", "h", "file://h/p"),
    ("file://h/p", "host", "", "file:///p"),
    ("file:///p", "host", "h:80", "file:///p"),
    ("http://h:1/p", "hostname", "g", "http://g:1/p"),
    ("http://h:1/p", "hostname", "g:2", "http://h:1/p"),
    ("http://h/p", "port", "8080", "http://h:8080/p"),
    ("http://h/p", "port", "\t9x8", "http://h:9/p"),
    ("http://h:1/p", "port", "", "http://h/p"),
    ("http://h:1/p", "port", "80", "http://h/p"),
    ("http://h:1/p", "port", "65536", "http://h:1/p"),
    ("http://h:1/p", "port", "x", "http://h:1/p"),
    ("file://h/p", "port", "1", "file://h/p"),
    ("http://h/p", "pathname", "", "http://h/"),
    ("http://h/p", "pathname", "a/../b", "http://h/b"),
    ("http://h/p", "pathname", "\\x?y#z", "http://h/x%3Fy%23z"),
    ("foo://h/p", "pathname", "", "foo://h"),
    ("foo:/p", "pathname", "//q", "foo:/.//q"),
    ("mailto:x", "pathname", "y", "mailto:x"),
    ("file:///p", "pathname", "c|/x", "file:///c:/x"),
    ("http://h/p?q", "search", "", "http://h/p"),
    ("http://h/p?q", "search", "?", "http://h/p?"),
    ("http://h/p", "search", "a' #é\n", "http://h/p?a%27%20%23%C3%A9"),
    ("foo:x", "search", "?a'", "foo:x?a'"),
    ("http://h/#x", "hash", "", "http://h/"),
    ("http://h/", "hash", "#", "http://h/#"),
    ("http://h/", "hash", "a <`#", "http://h/#a%20%3C%60#"),
    ("http://h/", "href", " foo:x y ", "foo:x y"),
]


def test_a_part_that_is_set_changes_the_url_as_the_standard_says(v8: PlainV8) -> None:
    change = """(rows) => rows.map(([href, part, value]) => {
      const u = new URL(href);
      u[part] = value;
      return [href, part, value, u.href];
    })"""
    assert v8(change, SETTERS) == [list(row) for row in SETTERS]


def test_what_cannot_be_parsed_says_so_and_changes_nothing(v8: PlainV8) -> None:
    errors = """(_, caught) => {
      const u = new URL('http://h/?a=1'), params = u.searchParams;
      return [
        caught(() => new URL('no"')), caught(() => new URL('/x', 'y')), caught(() => new URL('x'.repeat(1000))).length,
        caught(() => { u.href = 'no'; }), u.href, String(params), caught(() => new URL()), caught(() => URL('http://h')),
      ];
    }"""
    assert v8(errors) == [
        'TypeError: Invalid URL: "no\\""',
        'TypeError: Invalid URL: "/x" with base "y"',
        len('TypeError: Invalid URL: ""') + 200,
        'TypeError: Invalid URL: "no"',
        "http://h/?a=1",
        "a=1",
        "TypeError: 1 argument required, but only 0 present",
        "TypeError: Class constructor URL cannot be invoked without 'new'",
    ]


def test_an_invalid_url_is_reported_where_the_program_made_it(v8: PlainV8) -> None:
    frame = """() => {
      try { (function mine() { new URL('no'); })(); } catch (e) { return e.stack.split('\\n')[1].trim().split(' ')[1]; }
    }"""
    assert v8(frame) == "mine"


def test_search_params_and_their_url_follow_each_other(v8: PlainV8) -> None:
    follow = """() => {
      const u = new URL('http://h/?a=1&b=%20'), p = u.searchParams, seen = [];
      const note = () => seen.push(u.href + ' ' + p);
      note(); p.append('c', 'ä&'); note(); p.delete('a'); note(); u.search = '?z=1'; note(); u.href = 'foo:x?y'; note();
      p.set('y', '2'); note(); p.delete('y'); note(); u.search = 'x'; u.search = ''; note();
      return [...seen, u.searchParams === p];
    }"""
    assert v8(follow) == [
        "http://h/?a=1&b=%20 a=1&b=+",
        "http://h/?a=1&b=+&c=%C3%A4%26 a=1&b=+&c=%C3%A4%26",
        "http://h/?b=+&c=%C3%A4%26 b=+&c=%C3%A4%26",
        "http://h/?z=1 z=1",
        "foo:x?y y=",
        "foo:x?y=2 y=2",
        "foo:x ",
        "foo:x ",
        True,
    ]


FORMS: list[tuple[str, list[list[str]], str]] = [
    ("", [], ""),
    ("?a=b", [["a", "b"]], "a=b"),
    ("??a", [["?a", ""]], "%3Fa="),
    ("a&&=&=b&c==d", [["a", ""], ["", ""], ["", "b"], ["c", "=d"]], "a=&=&=b&c=%3Dd"),
    ("a+b=c%20d%2B", [["a b", "c d+"]], "a+b=c+d%2B"),
    ("%zz%4=%%41", [["%zz%4", "%A"]], "%25zz%254=%25A"),
    ("%u0041", [["%u0041", ""]], "%25u0041="),
    ("é=%C3%A9", [["é", "é"]], "%C3%A9=%C3%A9"),
    ("%ff=%E2%82x%F0%9F", [["\ufffd", "\ufffdx\ufffd"]], "%EF%BF%BD=%EF%BF%BDx%EF%BF%BD"),
    ("é%ff", [["é\ufffd", ""]], "%C3%A9%EF%BF%BD="),
    ("%EF%BB%BFa", [["\ufeffa", ""]], "%EF%BB%BFa="),
    ("*-._~!'()=😀", [["*-._~!'()", "😀"]], "*-._%7E%21%27%28%29=%F0%9F%98%80"),
]


def test_forms_are_read_and_written_as_urlencoded(v8: PlainV8) -> None:
    both = "(rows) => rows.map(([text]) => { const p = new URLSearchParams(text); return [text, [...p], String(p)]; })"
    assert v8(both, FORMS) == [list(row) for row in FORMS]


def test_search_params_are_made_of_pairs_records_and_text(v8: PlainV8) -> None:
    make = """(_, caught) => {
      const of = (...given) => String(new URLSearchParams(...given));
      return [
        of(), of(undefined), of(null), of(5), of([['a', 1], new Set(['b', 2])]), of({ a: 1, b: null }),
        of(new Map([['m', 1]])), of(new URLSearchParams('q=1&q=2')), of({ '\\uD835x': 1, xx: 2, '\\uD83Dx': 3 }),
        of(Object.create({ inherited: 1 }, { own: { value: 2 } })), of((function* () { yield ['g', '']; })()),
        caught(() => of([['a']])), caught(() => of([['a', 'b', 'c']])), caught(() => of([1])),
        caught(() => of(new String('s=1'))), caught(() => of({ [Symbol('s')]: 1 })),
      ];
    }"""
    assert v8(make) == [
        "", "", "null=", "5=", "a=1&b=2", "a=1&b=null", "m=1", "q=1&q=2", "%EF%BF%BDx=3&xx=2", "", "g=",
        "TypeError: Each pair must have a name and a value", "TypeError: Each pair must have a name and a value",
        "TypeError: Each pair must be iterable", "TypeError: Each pair must be iterable",
        "TypeError: Cannot convert a Symbol value to a string",
    ]  # fmt: skip


def test_search_params_can_be_asked_and_changed(v8: PlainV8) -> None:
    use = """(_, caught) => {
      const p = new URLSearchParams('b=1&a=2&b=3&\\uffff=4&\\u{10000}=5'), seen = [];
      seen.push(p.size, p.get('b'), p.get('x'), p.getAll('b'), p.getAll('x'));
      seen.push(p.has('a'), p.has('a', '1'), p.has('b', 3), p.has('a', undefined));
      p.sort(); seen.push([...p.keys()]);
      p.delete('b', '1'); p.set('a', 'new'); p.append('b', '4'); seen.push(String(p));
      p.set('b', '9'); p.set('fresh', '0'); p.delete('\\uffff'); seen.push([...p.entries()], [...p.values()]);
      const each = [];
      p.forEach(function (value, name, all) { each.push(`${this.t}${name}${value}${all === p}`); }, { t: '.' });
      seen.push(each);
      seen.push(p[Symbol.iterator] === p.entries, Object.prototype.toString.call(p));
      seen.push(caught(() => p.append('a')), caught(() => p.get()), caught(() => p.forEach()));
      return seen;
    }"""
    assert v8(use) == [
        5, "1", None, ["1", "3"], [], True, False, True, True,
        ["a", "b", "b", "\U00010000", "\uffff"],
        "a=new&b=3&%F0%90%80%80=5&%EF%BF%BF=4&b=4",
        [["a", "new"], ["b", "9"], ["\U00010000", "5"], ["fresh", "0"]],
        ["new", "9", "5", "0"],
        [".anewtrue", ".b9true", ".\U000100005true", ".fresh0true"],
        True, "[object URLSearchParams]",
        "TypeError: 2 arguments required, but only 1 present",
        "TypeError: 1 argument required, but only 0 present",
        "TypeError: forEach needs a function",
    ]  # fmt: skip


def test_an_iteration_sees_what_is_added_and_removed_while_it_runs(v8: PlainV8) -> None:
    live = """() => {
      const u = new URL('http://h/?a=1&b=2&c=3'), seen = [];
      for (const [name] of u.searchParams) {
        seen.push(name);
        if (name === 'a') { u.searchParams.delete('b'); u.searchParams.append('d', ''); }
      }
      return seen;
    }"""
    assert v8(live) == ["a", "c", "d"]


def test_whatever_parses_or_is_set_gives_a_url_that_parses_to_itself(v8: PlainV8) -> None:
    pick = random.Random(20).choice
    schemes = ["http:", "HTTPS:", "file:", "ftp:", "foo:", "ws:", "1:", ""]
    slashes = ["", "/", "//", "//", "///", "\\\\"]
    users, ports = ["", "u@", "u:p@", "@", "a@b@"], ["", "", ":", ":80", ":443", ":99999", ":x"]
    hosts = ["ex.com", "EX.", "1.2", "0x7f.1", "09", "[::1]", "[1:2::3:4.5.6.7]", "a%41", "é", "", ".", "c:", "C|"]
    segments = ["/", "/", "\\", "..", ".", "%2e", "a", "b", "C:", "c|", "%zz", "<", " ", "^", "😀"]
    tails = ["", "?", "?a=b'", "#", "#f`", "?q#f", "?é", " ?q", "  #f"]
    bases = [None, None, "http://h/a/b?c#d", "file:///C:/d/e", "file://h/x", "foo://h/p/q", "data:x"]
    parts = ["protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"]

    def path() -> str:
        return "".join(pick(segments) for _ in range(pick(range(8))))

    rows = [
        [
            pick(schemes) + pick(slashes) + pick(users) + pick(hosts) + pick(ports) + path() + pick(tails),
            pick(bases),
            [(pick(parts), pick([pick(schemes), pick(hosts) + pick(ports), path(), pick(tails)])) for _ in range(3)],
        ]
        for _ in range(4000)
    ]
    unstable = """(rows) => {
      const bad = [];
      let parsed = 0;
      for (const [input, base, changes] of rows) {
        const u = URL.parse(input, base ?? undefined);
        if (u === null) continue;
        parsed++;
        const check = (what) => { if (URL.parse(u.href)?.href !== u.href) bad.push([input, base, what, u.href]); };
        check('parsed');
        for (const [part, value] of changes) { u[part] = value; check(`${part} = ${value}`); }
      }
      return [bad, parsed > rows.length / 4];
    }"""
    assert v8(unstable, rows) == [[], True]
