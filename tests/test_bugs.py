"""Which tests cover which row of tests/data/bugs.jsonl, in the areas of approvals, results and providers.

The rows are what hurt users of comparable software. tests/durable/test_bugs.py has those of pauses and concurrency.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import cases

ROOT = Path(__file__).parent
AREAS = ("approval", "output", "provider-openai", "provider-anthropic")
TESTS = """
SCH-05 providers/test_openai.py test_a_catalog_that_the_vendor_would_refuse_reaches_programs_all_the_same
SCH-05 providers/test_anthropic.py test_the_code_tool_is_offered_alone_with_the_declarations
SCH-16 bridge/test_bugs.py test_whoever_decides_gets_the_whole_call_and_all_that_is_known_of_its_tool
SCH-16 bridge/test_policy.py test_a_rule_matches_by_server_and_caller
SCH-16 bridge/test_policy.py test_an_allow_rule_on_hints_matches_trusted_ones_only

APR-02 durable/test_bugs.py test_an_approval_of_long_arguments_lets_no_others_through
APR-02 bridge/test_approval.py test_arguments_that_differ_at_all_have_different_digests
APR-02 bridge/test_approval.py test_a_digest_depends_on_nothing_but_the_value
APR-03 bridge/test_bugs.py test_whoever_decides_gets_the_whole_call_and_all_that_is_known_of_its_tool
APR-03 bridge/test_terminal.py test_what_was_not_shown_in_full_cannot_be_approved
APR-03 bridge/test_gateway.py test_a_question_too_long_to_be_read_is_not_asked
APR-05 durable/test_bugs.py test_a_tool_that_changed_between_pause_and_resume_is_asked_about_again
APR-05 bridge/test_run_definitions.py test_a_later_run_is_told_that_what_was_approved_has_changed
APR-05 bridge/test_approval.py test_a_changed_definition_voids_a_grant_for_good
APR-05 bridge/test_definitions.py test_the_order_of_keys_makes_no_other_definition
APR-06 bridge/test_policy.py test_a_read_only_hint_of_an_untrusted_server_relaxes_nothing
APR-06 bridge/test_policy.py test_the_effect_of_a_tool_is_the_worst_that_its_trusted_hints_leave
APR-07 bridge/test_policy.py test_a_rule_stands_above_a_server_setting
APR-07 bridge/test_cli.py test_tools_as_json_has_the_same_and_every_schema
APR-08 bridge/test_policy.py test_a_pattern_matches_the_full_name_the_dotted_name_and_the_path
APR-08 bridge/test_policy.py test_a_pattern_that_can_name_no_tool_is_a_configuration_error
APR-08 bridge/test_policy.py test_explain_says_which_rule_decides_and_why_the_others_do_not
APR-08 bridge/test_review.py test_a_rule_that_matches_no_tool_is_warned_about
APR-09 bridge/test_policy.py test_the_strictest_rule_wins_in_any_order
APR-09 bridge/test_bugs.py test_what_is_approved_for_the_run_covers_no_tool_that_a_rule_denies
APR-11 bridge/test_bugs.py test_a_loop_of_fifty_calls_is_one_question_for_whoever_says_yes_to_the_run
APR-11 bridge/test_terminal.py test_a_group_is_shown_with_what_its_calls_share_and_where_they_differ
APR-11 bridge/test_approval.py test_a_verdict_may_say_until_when_its_grant_holds
APR-13 durable/test_bugs.py test_an_approver_that_never_answers_lets_the_call_expire
APR-13 bridge/test_run.py test_a_run_that_nobody_approves_pauses_and_says_what_it_waits_for
APR-15 durable/test_bugs.py test_a_denial_stands_in_what_the_model_reads_whatever_the_program_says
APR-15 bridge/test_render.py test_a_denied_call_is_told_by_the_host_whatever_the_program_returns
APR-15 bridge/test_run.py test_a_denied_call_rejects_with_the_reason
APR-16 bridge/test_bugs.py test_after_a_denial_that_stops_no_other_way_is_asked_about

OAI-01 providers/test_openai_hosted.py test_every_wave_of_the_vendors_program_is_answered_until_the_final_message
OAI-01 providers/test_openai.py test_what_nobody_here_knows_goes_back_as_it_came
OAI-01 providers/test_openai_property.py test_waves_of_the_vendors_programs
OAI-04 bridge/test_bugs.py test_every_record_of_a_call_says_whose_it_is_where_and_when
ANT-01 providers/test_anthropic_hosted.py test_calls_of_a_program_are_answered_wave_by_wave_with_the_container_and_the_same_tools
ANT-01 providers/test_anthropic_hosted.py test_a_container_is_carried_on_while_it_lives_and_left_out_when_it_has_expired
ANT-04 providers/test_bugs.py test_both_kinds_of_client_send_the_same_and_change_nothing_that_they_were_given

OUT-01 bridge/test_bugs.py test_a_verbose_tool_fills_no_context_whatever_the_program_does_with_it
OUT-01 bridge/test_render.py test_every_path_to_the_model_goes_through_one_cap
OUT-02 bridge/test_bugs.py test_a_cut_is_said_first_with_the_size_and_the_rest_is_whole_json
OUT-02 bridge/test_cut.py test_a_cut_text_is_within_its_budget_and_breaks_no_character
OUT-04 bridge/test_bugs.py test_whatever_a_program_returns_is_json_by_the_time_the_host_has_it
OUT-06 bridge/test_bugs.py test_a_number_that_json_cannot_say_reaches_no_tool
OUT-06 bridge/test_bugs.py test_what_json_has_a_form_for_reaches_a_tool_in_that_form
OUT-06 bridge/test_review.py test_what_json_cannot_say_is_said
OUT-07 bridge/test_bugs.py test_a_long_id_comes_back_to_a_tool_with_the_same_digits
OUT-07 bridge/test_executor.py test_big_integers_keep_their_digits_and_half_characters_break_nothing
"""  # noqa: E501  names stand on one line
COVERED = [row.split() for row in TESTS.splitlines() if row]


@cache
def names(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_every_row_of_these_areas_has_a_test() -> None:
    assert {row["id"] for row in cases("bugs") if row["area"] in AREAS} == {bug for bug, _, _ in COVERED}


@pytest.mark.parametrize(("file", "name"), sorted({(file, name) for _, file, name in COVERED}))
def test_every_test_that_is_named_is_there(file: str, name: str) -> None:
    assert name in names(file)
