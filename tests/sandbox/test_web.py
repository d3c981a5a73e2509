"""What a program has of the web platform besides URL: clones, text as bytes, base64, seeded random values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .plain_v8 import PlainV8


@pytest.fixture(scope="module")
def v8() -> Iterator[PlainV8]:
    with PlainV8() as plain:
        yield plain


# ---- what is there ---------------------------------------------------------------------------------------------


def test_nothing_but_the_named_globals_is_added_and_none_is_enumerable(v8: PlainV8) -> None:
    added = """(_, caught, names) => {
      const before = new Set(names), ours = Object.getOwnPropertyNames(globalThis).filter((name) => !before.has(name));
      return [ours.sort(), ours.filter((name) => Object.getOwnPropertyDescriptor(globalThis, name).enumerable)];
    }"""
    names = "TextDecoder TextEncoder URL URLSearchParams atob btoa crypto structuredClone"
    assert v8(added) == [names.split(), []]


def test_classes_and_functions_have_the_shape_of_the_platforms(v8: PlainV8) -> None:
    shape = """() => {
      const tag = (x) => Object.prototype.toString.call(x);
      const classes = [TextEncoder, TextDecoder, URL, URLSearchParams], functions = [structuredClone, atob, btoa];
      return [[...classes, ...functions, crypto.randomUUID].map((f) => f.name), tag(new TextEncoder()),
        tag(new TextDecoder()), tag(crypto), Object.isFrozen(crypto), Object.keys(crypto),
        Object.keys(new URL('a:')), 'prototype' in atob, 'prototype' in structuredClone];
    }"""
    assert v8(shape) == [
        ["TextEncoder", "TextDecoder", "URL", "URLSearchParams", "structuredClone", "atob", "btoa", "randomUUID"],
        "[object TextEncoder]", "[object TextDecoder]", "[object Crypto]", True, ["randomUUID", "getRandomValues"],
        [], False, False,
    ]  # fmt: skip


def test_a_program_that_patches_prototypes_does_not_break_what_it_was_given(v8: PlainV8) -> None:
    use = """
      const bad = Uint8Array.of(0xe2, 0x82, 0x41, 0xff);
      const map = new Map([[{ a: [1, , /x/g] }, new Set([new Date(5)])]]);
      const error = new TypeError('m', { cause: [1n] }), view = new Uint16Array([1, 2, 3]).subarray(1);
      const work = () => {
        const u = new URL('../b?x=1&y=%E2%82#é', 'HTTP://u:p@EXÄMPLE.com:81/a/b/c');
        u.searchParams.append('z', ' ~'); u.searchParams.sort(); u.searchParams.delete('x');
        u.hash = '<'; u.host = '[1::0.0.0.2]:80';
        const clone = structuredClone({ map, error, view, list: [1, [2]] });
        const bytes = new TextEncoder().encode('aé€😀'), decoder = new TextDecoder('utf-16le');
        return [u.href, u.searchParams.get('z'), new URLSearchParams({ a: 1 }).toString(), clone, bytes,
          new TextDecoder().decode(bad), decoder.decode(view), atob(btoa('\\xff\\0a')),
          crypto.randomUUID()[14], crypto.getRandomValues(new Uint8Array(0))];
      };
    """
    # What is compared is read from the results after the prototypes were put back.
    patched = f"""() => {{
      {use}
      const classes = [Array, Object, String, RegExp, Map, Set, Function, Date, Number, Error, ArrayBuffer, Uint8Array];
      const holders = classes.flatMap((Class) => [Class, Class.prototype]);
      const Typed = Object.getPrototypeOf(Uint8Array), Iteration = Object.getPrototypeOf([].values());
      holders.push(Typed.prototype, Iteration, Reflect, JSON, Math);
      const {{ ownKeys: own, getOwnPropertyDescriptor: describe, defineProperty: put }} = Reflect;
      const before = work(), undo = [];
      for (let i = 0; i < holders.length; i++) {{
        const holder = holders[i], keys = own(holder);
        for (let j = 0; j < keys.length; j++) {{
          const d = describe(holder, keys[j]);
          if (!d.configurable || keys[j] === 'constructor' || keys[j] === Symbol.species) continue;
          const made = {{ __proto__: null, configurable: true }};
          const poison = () => {{ throw `poisoned ${{String(keys[j])}}`; }};
          if (typeof d.value === 'function') {{ made.value = poison; made.writable = true; }}
          else if (d.get) made.get = poison;
          else continue;
          undo[undo.length] = () => put(holder, keys[j], d);
          put(holder, keys[j], made);
        }}
      }}
      const names = ['get', 'set', 'value', 'writable', 'alphabet', 'maxByteLength', 'make', 'index'];
      for (let i = 0; i < names.length; i++) {{
        const name = names[i];
        const inherited = () => {{ throw `inherited ${{name}}`; }};
        put(Object.prototype, name, {{ __proto__: null, get: inherited, set: inherited, configurable: true }});
        undo[undo.length] = () => delete Object.prototype[name];
      }}
      let after;
      try {{ after = work(); }} catch (e) {{ after = e; }}
      for (let i = undo.length - 1; i >= 0; i--) (0, undo[i])();
      const plain = (_, v) => v instanceof Map || v instanceof Set ? [...v]
        : v instanceof Error ? [v.name, v.message, v.cause]
        : v instanceof RegExp || typeof v === 'bigint' ? String(v) : v;
      const same = JSON.stringify(before, plain) === JSON.stringify(after, plain);
      return [Array.isArray(after) ? null : String(after.stack ?? after), same, undo.length > 300];
    }}"""
    assert v8(patched) == [None, True, True]


# ---- text as bytes ---------------------------------------------------------------------------------------------

UTF8: list[tuple[str, list[int]]] = [
    ("", []),
    ("aé€😀", [0x61, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80]),
    ("\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff", list("\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff".encode())),
    ("\ud83dx\ude00", [0xEF, 0xBF, 0xBD, 0x78, 0xEF, 0xBF, 0xBD]),
]


def test_text_is_encoded_as_utf8_with_lone_surrogates_replaced(v8: PlainV8) -> None:
    encode = "(rows) => rows.map(([text]) => [text, [...new TextEncoder().encode(text)]])"
    assert v8(encode, UTF8) == [list(row) for row in UTF8]
    assert v8("() => [new TextEncoder().encode().length, new TextEncoder().encode('é').buffer.byteLength]") == [0, 2]


def test_encoding_into_a_buffer_stops_before_the_first_character_that_does_not_fit(v8: PlainV8) -> None:
    into = """(sizes, caught) => [
      sizes.map((size) => {
        const bytes = new Uint8Array(size), { read, written } = new TextEncoder().encodeInto('aé€😀b', bytes);
        return [read, written, bytes.reduce((sum, byte) => sum + (byte > 0), 0)];
      }), caught(() => new TextEncoder().encodeInto('a', new Int8Array(1)))]"""
    expected = [[0, 0], [1, 1], [1, 1], [2, 3], [2, 3], [3, 6], [3, 6], [5, 10], [6, 11], [6, 11]]
    sizes = [0, 1, 2, 3, 5, 6, 9, 10, 11, 20]
    assert v8(into, sizes) == [
        [[read, written, written] for read, written in expected],
        "TypeError: encodeInto writes into a Uint8Array",
    ]


# Label, bytes, text; each ill-formed part is one U+FFFD (Unicode, "maximal subparts").
DECODED = [
    ("utf-8", [0x61, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80], "aé€😀"),
    ("utf-8", [0xEF, 0xBB, 0xBF, 0x61, 0xEF, 0xBB, 0xBF], "a\ufeff"),
    ("utf-8", [0x80, 0x61, 0xFF], "\ufffda\ufffd"),
    ("utf-8", [0xC0, 0x80, 0xC1, 0xBF], "\ufffd" * 4),
    ("utf-8", [0xE0, 0x80, 0x80], "\ufffd" * 3),
    ("utf-8", [0xED, 0xA0, 0x80], "\ufffd" * 3),
    ("utf-8", [0xF4, 0x90, 0x80, 0x80], "\ufffd" * 4),
    ("utf-8", [0xF5, 0x80], "\ufffd" * 2),
    ("utf-8", [0xE2, 0x82], "\ufffd"),
    ("utf-8", [0xF0, 0x9F, 0x98, 0x41], "\ufffdA"),
    ("utf-8", [0xE2, 0xE2, 0x82, 0xAC], "\ufffd€"),
    ("utf-8", [0x25, 0x34, 0x31, 0x25], "%41%"),
    ("utf-16le", [0xFF, 0xFE, 0x61, 0x00, 0x3D, 0xD8, 0x00, 0xDE], "a😀"),
    ("utf-16le", [0x3D, 0xD8, 0x61, 0x00], "\ufffda"),
    ("utf-16le", [0x61, 0x00, 0x3D, 0xD8, 0x41], "a\ufffd"),
    ("utf-16le", [0x41], "\ufffd"),
    ("utf-16be", [0xFE, 0xFF, 0x00, 0x61, 0xD8, 0x3D, 0xDE, 0x00], "a😀"),
    ("latin1", [0x41, 0xE9, 0x80, 0x9F, 0x81], "Aé€Ÿ\x81"),
]


def test_bytes_are_decoded_whole_and_byte_by_byte_alike(v8: PlainV8) -> None:
    decode = """(rows) => rows.map(([label, bytes]) => {
      const whole = new TextDecoder(label).decode(new Uint8Array(bytes)), decoder = new TextDecoder(label);
      let text = '';
      for (const byte of bytes) text += decoder.decode(new Uint8Array([byte]), { stream: true });
      return [whole, text + decoder.decode()];
    })"""
    assert v8(decode, DECODED) == [[text, text] for _, _, text in DECODED]


def test_a_fatal_decoder_throws_where_another_would_replace(v8: PlainV8) -> None:
    fatal = """(rows) => rows.map(([label, bytes]) => {
      try { return new TextDecoder(label, { fatal: true }).decode(new Uint8Array(bytes)); } catch (e) { return e.name; }
    })"""
    assert v8(fatal, DECODED) == ["TypeError" if "\ufffd" in text else text for _, _, text in DECODED]


def test_a_decoder_keeps_the_mark_if_asked_and_begins_anew_after_a_last_part(v8: PlainV8) -> None:
    use = """(_, caught) => {
      const mark = Uint8Array.of(0xef, 0xbb, 0xbf, 0x61);
      const d = new TextDecoder('UTF8 ', { ignoreBOM: true, fatal: true });
      const plain = new TextDecoder();
      plain.decode(Uint8Array.of(0xe2), { stream: true });
      const rest = plain.decode(), view = new DataView(mark.buffer, 3), { buffer } = mark;
      return [d.decode(mark), d.encoding, d.fatal, d.ignoreBOM, rest, plain.decode(mark), plain.decode(mark),
        plain.decode(view), plain.decode(buffer), plain.decode(undefined), new TextDecoder('\\tLatin1\\n').encoding,
        caught(() => plain.decode('text')), caught(() => new TextDecoder('koi8-r'))];
    }"""
    assert v8(use) == [
        "\ufeffa", "utf-8", True, True, "\ufffd", "a", "a", "a", "a", "", "windows-1252",
        "TypeError: decode takes an ArrayBuffer or a typed array, such as a Uint8Array",
        'RangeError: The encoding "koi8-r" is not available: use utf-8, utf-16le, utf-16be or windows-1252 (latin1)',
    ]  # fmt: skip


# ---- base64 ----------------------------------------------------------------------------------------------------

# Text, its base64, and ways to write that which the forgiving decoder takes as well.
BASE64: list[tuple[str, str, list[str]]] = [
    ("", "", [" \t\n\f\r "]),
    ("a", "YQ==", ["YQ", " Y Q = = ", "YR=="]),
    ("ab", "YWI=", ["YWI", "YWJ"]),
    ("abc", "YWJj", ["YWJ\nj"]),
    ("\x00\xff\xfe~", "AP/+fg==", ["AP/+fg"]),
]


def test_base64_goes_both_ways_and_forgives_blanks_and_missing_padding(v8: PlainV8) -> None:
    both = "(rows) => rows.map(([text, code, others]) => [btoa(text), [code, ...others].map(atob)])"
    assert v8(both, BASE64) == [[code, [text] * (1 + len(others))] for text, code, others in BASE64]


def test_what_is_not_base64_or_not_latin1_is_an_invalid_character_error(v8: PlainV8) -> None:
    errors = """(texts, caught) => [
      texts.filter((text) => {
        try { atob(text); return true; } catch (e) { return e.name + e.code !== 'InvalidCharacterError5'; }
      }),
      caught(() => atob('*')), caught(() => btoa('\\u0100')), caught(() => atob()), atob(null).length,
      (() => { try { atob('*'); } catch (e) { return e instanceof Error; } })(),
    ]"""
    assert v8(errors, ["a", "YQ=", "YQ===", "=", "====", "YWJj=", "Y=Q=", "YQ==YQ==", "Y-_Q", "Y\vQ", "é"]) == [
        [],
        "InvalidCharacterError: atob: the text is not correctly encoded base64",
        "InvalidCharacterError: btoa: the text has characters beyond Latin-1; encode it with TextEncoder first",
        "TypeError: 1 argument required, but only 0 present",
        3,
        True,
    ]


# ---- random values ---------------------------------------------------------------------------------------------


def test_random_values_come_from_the_seeded_generator_alone(v8: PlainV8) -> None:
    draw = """() => [crypto.randomUUID(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(6))],
      String(crypto.getRandomValues(new BigInt64Array(1))[0])]"""
    first = v8(draw)
    assert v8(draw) == first

    state = 1

    def word() -> int:
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return state

    for uuid in first[:2]:
        digits = "".join(f"{word():08x}" for _ in range(4))
        variant = "89ab"[int(digits[16], 16) & 3]
        assert uuid == f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
    assert first[2] == [*word().to_bytes(4, "little"), *word().to_bytes(4, "little")[:2]]
    wide = word().to_bytes(4, "little") + word().to_bytes(4, "little")
    assert int(first[3]) == int.from_bytes(wide, "little", signed=True)


def test_random_values_fill_integer_views_of_a_bounded_size_only(v8: PlainV8) -> None:
    fill = """(_, caught) => {
      const of = (array) => caught(() => crypto.getRandomValues(array)), part = new Uint8Array(8);
      crypto.getRandomValues(part.subarray(2, 4));
      const same = new Int32Array(2);
      return [of(new Float64Array(1)), of(new DataView(new ArrayBuffer(1))), of(new Uint8Array(65537)), of([]),
        of(new Uint16Array(32768)),
        [0, 1, 4, 5, 6, 7].every((i) => part[i] === 0), crypto.getRandomValues(same) === same];
    }"""
    assert v8(fill) == [
        "TypeMismatchError: getRandomValues fills integer arrays only",
        "TypeMismatchError: getRandomValues fills integer arrays only",
        "QuotaExceededError: getRandomValues gives at most 65536 bytes at once, not 65537",
        "TypeError: getRandomValues fills a typed array",
        None,
        True,
        True,
    ]
