import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_kernel.deletion_vectors import z85


def test_the_specification_s_example():
    assert z85.encode(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert z85.decode("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@given(st.binary(max_size=200))
def test_encoding_round_trips_with_padding(data):
    text = z85.encode(data)
    assert len(text) == (len(data) + 3) // 4 * 5
    assert z85.decode(text)[: len(data)] == data
    assert not any(z85.decode(text)[len(data) :])


@pytest.mark.parametrize(
    "text", ["abcd", "abc d", "abc_d", "abc~d", "abc;d", "abcé1", "#####", "|abcd", "abc\x00d"]
)
def test_invalid_input_is_refused(text):
    with pytest.raises(ValueError, match="Z85"):
        z85.decode(text)


@given(st.text(max_size=50))
def test_any_text_decodes_or_is_refused(text):
    try:
        data = z85.decode(text)
    except ValueError:
        return
    if not text[-5:].startswith("#"):
        assert z85.encode(data) == text


@pytest.mark.parametrize(
    ("text", "data"),
    [("##093", b"\x03\x00"), ("###01", b"\x01"), ("#0001", b"\0\0\x01"), ("HelloWorld##093", b"\x03\x00")],
)
def test_a_partial_last_group_in_rusts_format(text, data):
    assert z85.decode(text)[-len(data) :] == data
    assert len(z85.decode(text)) == len(data) + (8 if len(text) > 5 else 0)


@pytest.mark.parametrize("text", ["#####", "####1", "###%%", "##093HelloWorld", "#%%%%"])
def test_an_overlong_partial_group_is_refused(text):
    with pytest.raises(ValueError, match="Z85"):
        z85.decode(text)
