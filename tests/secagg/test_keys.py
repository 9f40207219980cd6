"""Signatures say who made a key, for which run and settings; and no key is without a secret."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedadb.secagg.keys import (
    canonical,
    in_order,
    is_signed,
    make_private_key,
    pair_keys,
    public_key,
    sign_key,
)


def test_a_signature_is_for_one_site_run_key_and_settings() -> None:
    identity, foreign = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    key = public_key(make_private_key())
    signature = sign_key(identity, "ab", "north", key, "cd")
    assert is_signed(identity.public_key(), signature, "ab", "north", key, "cd")
    assert not is_signed(foreign.public_key(), signature, "ab", "north", key, "cd")
    other_key = public_key(make_private_key())
    for wrong in (
        ("ac", "north", key, "cd"),
        ("ab", "south", key, "cd"),
        ("ab", "north", other_key, "cd"),
        ("ab", "north", key, "ce"),
    ):
        assert not is_signed(identity.public_key(), signature, *wrong)
    assert not is_signed(identity.public_key(), b"", "ab", "north", key, "cd")


def test_a_key_without_a_secret_is_refused() -> None:
    private = make_private_key()
    public = {"a": public_key(private), "b": bytes(32), "c": public_key(make_private_key())}
    with pytest.raises(ValueError, match="shared key"):
        pair_keys("ab", "a", private, public)


def test_two_keys_are_never_the_same() -> None:
    assert make_private_key() != make_private_key()


def test_the_canonical_form_and_the_order_of_names() -> None:
    assert canonical({"b": [1, None], "a": "é"}) == b'{"a":"\\u00e9","b":[1,null]}'
    assert in_order(["b", "é", "B", "a"]) == ["B", "a", "b", "é"]
