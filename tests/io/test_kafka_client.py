"""No message shows what somebody put in the place of a topic or among the brokers."""

import pytest

from pianissimo.errors import ParameterError
from pianissimo.io.kafka import check_topic_name, client_settings


@pytest.mark.parametrize("topic", ["kafka://u:canary@h/x", "canary canary", "", "..", "canary/x", "ä"])
def test_what_is_no_topic_is_not_shown(topic: str) -> None:
    with pytest.raises(ParameterError, match="topic must be of 1 to 249 letters") as refused:
        check_topic_name(topic)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("brokers", ["u:canary@host:9092", "host:9092,SASL_SSL://u:canary@host:9092"])
def test_brokers_hold_no_password_since_they_are_shown(brokers: str) -> None:
    with pytest.raises(ParameterError, match="brokers must be addresses") as refused:
        client_settings(brokers, None, {}, {})
    assert "canary" not in str(refused.value)
