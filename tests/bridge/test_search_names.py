"""A question that names a tool finds it first, and every word of a name outweighs words that all tools have."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import pytest

from bridge.bench.workloads.catalogue import generated
from bridge.naming import LONGEST, Names
from bridge.ranking import Index
from bridge.search import Session
from bridge.tools import Catalog, Tool
from bridge.words import parts, stem
from tests.bridge.catalogue import catalogue

# What the benchmark of catalogues searches: descriptions of one vocabulary, which is that of the names too.
GENERATED = Catalog(
    Tool(name=each["name"], description=each["description"], input_schema=each["schema"])
    for each in generated(1000, random.Random("catalogue/20261130/1000"))[
        :: 1 if os.environ.get("SANDBRIDGE_NIGHTLY") else 4
    ]
)
CATALOGS = {"servers": catalogue(), "generated": GENERATED}
INDEXES = {
    (name, plain): Index(catalog.entries, plain=plain) for name, catalog in CATALOGS.items() for plain in (False, True)
}
STYLES: dict[str, Callable[[list[str]], str]] = {
    "snake": "_".join,
    "kebab": "-".join,
    "constant": lambda words: "_".join(words).upper(),
    "camel": lambda words: words[0] + "".join(map(str.capitalize, words[1:])),
    "pascal": lambda words: "".join(map(str.capitalize, words)),
    "flat": "".join,
}
SENTENCES = [
    "{}",
    "please run {} for ticket-7",
    "what does the `{}` do?",
    "{}: arguments, and get all regions",
    "{}({{}})",
]


def index_of(*tools: Tool) -> Index:
    return Index(Catalog(tools).entries)


def names(index: Index, query: str) -> list[str]:
    return [entry.name for entry in index.search(query)]


def letters(name: str) -> str:
    return "".join(parts(name))


def clearest(index: Names, question: str) -> set[int]:
    named = index.named(question)
    return {number for number, place in named.items() if place == min(named.values())}


# ---- every tool of both catalogues ------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["fts5", "plain"])
@pytest.mark.parametrize("catalog", CATALOGS)
def test_every_tool_is_the_first_that_its_full_name_finds(catalog: str, plain: bool) -> None:
    index = INDEXES[catalog, plain]
    assert [e.name for e in index.entries if index.search(e.name)[0] is not e] == []


@pytest.mark.parametrize("catalog", CATALOGS)
def test_every_tool_is_the_first_that_its_path_finds_among_other_words(catalog: str) -> None:
    index = INDEXES[catalog, False]
    missed = [
        e.name for e in index.entries if index.search(f"what does tools.{e.expression}() give for a?")[0] is not e
    ]
    assert missed == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("catalog", CATALOGS)
def test_every_tool_is_what_its_name_in_any_style_names_most_clearly(catalog: str, style: str) -> None:
    entries = CATALOGS[catalog].entries
    index = Names(entries)
    for number, entry in enumerate(entries):
        said, sentence = parts(entry.tool.name), SENTENCES[number % len(SENTENCES)]
        if len(said) == 1 and sentence != "{}" and "`" not in sentence:
            continue  # a name of one plain word: see below
        named = clearest(index, sentence.format(STYLES[style](said)))
        assert number in named, entry.name
        assert {letters(entries[other].tool.name) for other in named} == {letters(entry.tool.name)}


@pytest.mark.parametrize("written", ["{0}/{1}", "{0}.{1}", "{0}__{1}", "mcp_{0}"])
def test_every_tool_of_a_server_is_named_by_both(written: str) -> None:
    entries = CATALOGS["servers"].entries
    index = Names(entries)
    for number, entry in enumerate(entries):
        name = written.format(entry.tool.server, entry.tool.name)
        if written == "mcp_{0}":  # the path, shouted
            name = entry.expression.upper()
        assert clearest(index, SENTENCES[number % len(SENTENCES)].format(name)) == {number}, name


@pytest.mark.parametrize("plain", [False, True], ids=["fts5", "plain"])
@pytest.mark.parametrize("catalog", CATALOGS)
def test_no_tool_that_lacks_a_word_stands_before_one_whose_name_has_them_all(catalog: str, plain: bool) -> None:
    index = INDEXES[catalog, plain]
    naming = Names(index.entries)
    having = [{stem(word) for word in parts(f"{e.tool.server or ''} {e.tool.name}")} for e in index.entries]
    numbers = {entry.name: number for number, entry in enumerate(index.entries)}
    for entry in index.entries:
        question = " ".join(parts(entry.tool.name)[::-1])
        found = index.search(question)
        before = {numbers[other.name] for other in found[: found.index(entry)]} - naming.named(question).keys()
        wanted = {stem(word) for word in parts(question)}
        assert [index.entries[n].name for n in before if not wanted <= having[n]] == [], entry.name


def test_a_tool_of_a_large_catalogue_is_declared_by_a_search_for_its_name() -> None:
    session = Session(GENERATED, budget=0)
    for entry in GENERATED.entries[::20]:
        assert session.search(entry.name, limit=5).entries[0] is entry
        assert f"  {entry.name}(" in session.declarations


# ---- what is a name ---------------------------------------------------------------------------------------------


FIND = Tool(name="find", server="mongodb", description="Run a query against a collection.")
FILES = Tool(name="search_files", server="disk", description="Find a file, find text, find anything.")


def test_a_plain_word_among_others_is_no_name() -> None:
    assert Names(Catalog([FIND, FILES]).entries).named("find a file") == {}


@pytest.mark.parametrize(
    "query",
    ["find", "Find!", "how do I find it", "mongodb find", "file: `find`", "tools.mongodb.find file", "mongodb/find"],
)
def test_a_plain_word_is_a_name_where_it_is_marked_as_one(query: str) -> None:
    assert names(index_of(FILES, FIND), query)[0] == "mongodb/find"


def test_a_function_of_one_word_is_named_as_programs_call_it() -> None:
    index = index_of(Tool(name="sum_of_lists", description="A sum."), Tool(name="sum"))
    assert names(index, "lists of tools.sum")[0] == "sum"


def test_the_longest_name_among_the_words_stands_first() -> None:
    index = index_of(
        Tool(name="create_pull"), Tool(name="create_pull_request"), Tool(name="create_pull_request_review")
    )
    assert names(index, "please create pull request review soon") == [
        "create_pull_request_review",
        "create_pull_request",
        "create_pull",
    ]


def test_a_name_that_is_written_as_one_stands_before_words_that_make_up_another() -> None:
    index = index_of(Tool(name="create_pull_request_review"), Tool(name="create_pull_request"))
    assert names(index, "a create_pull_request review")[0] == "create_pull_request"


def test_two_names_stand_in_the_order_of_the_question() -> None:
    index = index_of(Tool(name="get_note"), Tool(name="list_notes"), Tool(name="delete_note"))
    assert names(index, "list_notes, then deleteNote")[:2] == ["list_notes", "delete_note"]


def test_of_two_names_that_differ_by_their_style_the_one_that_was_written_is_first() -> None:
    index = index_of(Tool(name="getUser"), Tool(name="get_user"))
    assert names(index, "call get_user now") == ["get_user", "getUser"]
    assert names(index, "call getUser now") == ["getUser", "get_user"]


def test_a_server_that_is_said_elsewhere_decides_between_tools_of_one_name() -> None:
    tools = [Tool(name="create_issue", server=server) for server in ("alpha", "beta-two", "gamma")]
    index = index_of(*tools)
    assert names(index, "use create_issue to tell Beta Two")[0] == "beta-two/create_issue"
    assert names(index, "create_issue")[0] == "alpha/create_issue"


def test_between_tools_of_one_name_the_other_words_decide() -> None:
    index = index_of(
        Tool(name="list_rooms", server="chat", description="Rooms to talk in."),
        Tool(name="list_rooms", server="hotel", description="Rooms with beds."),
    )
    assert names(index, "list_rooms with two beds")[0] == "hotel/list_rooms"


def test_a_name_is_found_without_a_word_that_the_index_has() -> None:
    assert names(index_of(Tool(name="get_note_ticket"), Tool(name="play")), "getnoteticket") == ["get_note_ticket"]


def test_a_name_stands_before_what_an_embedding_thinks() -> None:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "song" in text or text == "lock_door" else [0.0, 1.0] for text in texts]

    tools = [Tool(name="play_song", description="No lock, no door."), Tool(name="lock_door")]
    assert names(Index(Catalog(tools).entries, embed=embed), "lock_door")[0] == "lock_door"


def test_a_name_of_very_many_words_is_found_alone_and_as_one_word() -> None:
    long = "_".join(f"word{chr(97 + n)}" for n in range(LONGEST + 4))
    index = index_of(Tool(name="worda_wordb"), Tool(name=long))
    assert names(index, long.replace("_", " "))[0] == long
    assert names(index, f"see {long}, please")[0] == long


# ---- words that every tool has ----------------------------------------------------------------------------------


def shared() -> Index:
    """Names with few verbs, and descriptions that all say the same words; those of regions say them at length."""
    things = ["invoice", "ticket", "region", "note", "label", "team", "page", "step"]
    prose = {thing: ("Has " + ", ".join(things) + " and more. ") * (3 if thing == "region" else 1) for thing in things}
    made = [(verb, thing) for thing in things for verb in ("export", "get", "merge")]
    tools = [Tool(name=f"{verb}_{thing}", description=prose[thing]) for verb, thing in made]
    return index_of(*tools, *(Tool(name=f"close_{thing}") for thing in ("door", "lamp", "song")))


@pytest.mark.parametrize("query", ["merge the numbers of a region", "sizes of regions to be merged"])
def test_a_word_that_is_in_most_descriptions_still_counts_in_the_names_that_have_it(query: str) -> None:
    # No name has "numbers" or "sizes": the words of a question are alternatives.
    assert names(shared(), query)[0] == "merge_region"


@pytest.mark.parametrize("plain", [False, True], ids=["fts5", "plain"])
def test_tools_are_found_by_their_purpose_though_all_descriptions_share_their_words(plain: bool) -> None:
    index = INDEXES["generated", plain]
    some = index.entries[::5]
    found = [entry in index.search(entry.tool.description.partition(". ")[0])[:5] for entry in some]
    assert sum(found) >= 0.95 * len(some)


@pytest.mark.parametrize("query", ["region get", "regions merged", "the region of a note"])
def test_names_with_every_word_stand_first(query: str) -> None:
    index = index_of(*(e.tool for e in shared().entries), Tool(name="move_note_region", description=""))
    first = names(index, query)[0]
    assert first == {"region get": "get_region", "regions merged": "merge_region"}.get(query, "move_note_region")


def test_a_slip_in_a_name_is_no_word_less() -> None:
    assert names(shared(), "get_regoin")[0] == "get_region"
