"""Sealed values: AES-256-GCM over text, bound to a subject and a place.

A sealed value is Base64 after `sealed:`. It begins with a version, the length of its
subject, the subject and a digest of its place. These are authenticated with the text, so that a
value that was moved to another field, event or subject does not open.
"""

from __future__ import annotations

import binascii
import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.errors import UnreadableEvent

PREFIX = "sealed:"

_VERSION = 1
_NONCE = 12
_PLACE = 16

key = AESGCM


class Sealed(NamedTuple):
    """A sealed value in its parts."""

    subject: str
    header: bytes
    nonce: bytes
    body: bytes


def seal(key: AESGCM, subject: str, text: str, place: Sequence[str]) -> str:
    """Text as a sealed value."""
    name = subject.encode()
    header = bytes([_VERSION]) + len(name).to_bytes(2, "big") + name + _digest(place)
    nonce = secrets.token_bytes(_NONCE)
    body = key.encrypt(nonce, text.encode(), header)
    return PREFIX + binascii.b2a_base64(header + nonce + body, newline=False).decode()


def parse(text: str) -> Sealed:
    """The parts of a sealed value."""
    try:
        if not text.startswith(PREFIX):
            raise ValueError
        found = binascii.a2b_base64(text[len(PREFIX) :], strict_mode=True)
        end = 3 + int.from_bytes(found[1:3], "big") + _PLACE
        if found[0] != _VERSION or len(found) < end + _NONCE:
            raise ValueError
        subject = found[3 : end - _PLACE].decode()
    except (ValueError, IndexError, binascii.Error):
        raise UnreadableEvent(
            "A stored value is declared sealed and is not, or has been cut",
            hint="Something else has written to the topic, or the value was changed on its way",
        ) from None
    return Sealed(subject, found[:end], found[end : end + _NONCE], found[end + _NONCE :])


def open(key: AESGCM, sealed: Sealed, place: Sequence[str] | None) -> str:
    """The text of a sealed value."""
    try:
        if place is not None and sealed.header[-_PLACE:] != _digest(place):
            raise InvalidTag
        return key.decrypt(sealed.nonce, sealed.body, sealed.header).decode()
    except InvalidTag:
        raise UnreadableEvent(
            f"A sealed value of {sealed.subject!r} was changed, or moved from another place",
            hint="Something else has written to the topic, or the key store is another log's",
        ) from None


def _digest(place: Sequence[str]) -> bytes:
    # With their lengths, no two places are the same text.
    text = "".join([f"{len(part)}:{part}" for part in place])
    return hashlib.sha256(text.encode()).digest()[:_PLACE]
