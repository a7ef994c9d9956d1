"""Hidden tags: what events are found by, without naming a person in the index."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import InvalidDomain
from headrace.eventsourcing.codec import Data
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.personal import Personal
from headrace.log import Match


class HiddenTag(str):
    """A tag that is stored as a keyed hash. Make it with `es.hidden`."""

    __slots__ = ()


def hidden(tag: str) -> HiddenTag:
    """A tag that names no person where it is stored, such as `hidden(f"email:{email}")`.

    Equal tags stay equal, so events are found by it and a rule such as a unique e-mail holds. What
    is stored is what stands before the colon, and a hash that only the key store can make.
    """
    return HiddenTag(tag)


def stored_tags(tags: Iterable[str], keys: KeyStore | None) -> tuple[str, ...]:
    """Tags as they are stored and searched for."""
    return tuple(_hide(tag, keys) if isinstance(tag, HiddenTag) else tag for tag in tags)


def stored_matches(matches: Iterable[Match], keys: KeyStore | None) -> list[Match]:
    """Matches with their tags as they are stored."""
    return [[stored_tags(group, keys) for group in match] for match in matches]


def check_tags(personal: Personal, data: Data, tags: Iterable[str]) -> None:
    """Raise if a tag has a personal field in clear."""
    for name in personal.fields:
        value = data.get(name)
        for tag in tags:
            if isinstance(value, str) and value and value in tag and not isinstance(tag, HiddenTag):
                raise InvalidDomain(
                    f"A tag has the personal field {name!r} in clear",
                    hint="Tags are never sealed: es.hidden(tag) stores a keyed hash instead",
                )


def _hide(tag: str, keys: KeyStore | None) -> str:
    if keys is None:
        raise InvalidDomain(
            "A hidden tag needs a key store",
            hint="Open the domain with one: bank.open(log, keys=es.KeyStore(path))",
        )
    return keys.hide(tag)
