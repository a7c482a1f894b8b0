"""Identities: what differs has another one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records.case import Serial, campaign_id_of

_TEXTS = st.text("aZ09._-~:_ é") | st.text(max_size=20)


@given(_TEXTS, _TEXTS)
def test_a_campaign_of_a_phone_s_part_tells_the_submission_and_the_phone(
    submission: str, serial: str
) -> None:
    first, _, last = campaign_id_of(submission, Serial(serial)).rpartition("_")
    assert (first, re.sub(r"~([0-9a-f]+)~", lambda found: chr(int(found[1], 16)), last)) == (
        submission,
        serial,
    )


def test_such_a_campaign_s_id_is_a_plain_word() -> None:
    assert campaign_id_of("night", Serial("emulator-5554")) == "night_emulator-5554"
    assert campaign_id_of("night-emulator", Serial("5554")) == "night-emulator_5554"
    assert campaign_id_of("night", Serial("192.168.1.5:5555")) == "night_192.168.1.5~3a~5555"
