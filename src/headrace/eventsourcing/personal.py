"""Personal fields: sealed where they are stored, and opened by whoever has the keys.

Stored data names its sealed fields itself, with what each reads as once its subject is forgotten.
So it can be opened before any upcaster runs, and after a declaration has changed.
"""

from __future__ import annotations

import dataclasses
import json
import string
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidDomain, SubjectForgotten, WrongType
from headrace.eventsourcing.codec import Data
from headrace.eventsourcing.keys import KeyStore

FORGOTTEN = "(forgotten)"
"""The value of a personal field of type `str`, once its subject is forgotten. A field that may be
None reads as None."""

SEALED = "(sealed)"
"""The value of a personal field of type `str` without a key store."""

ITSELF = "{aggregate}"

MARK = "$sealed"
"""The name beside the fields of stored data under which its sealed fields are listed."""

REASON = "$reason"
"""The name in the list for the reason of a refusal, which is in a column of its own, and is sealed
for so many subjects."""

Place = Sequence[str]
"""The place of stored data, such as ("event", "account/a-1", "3", "account-opened")."""

PersonalFields = Mapping[str, str | None] | Sequence[str]
"""Names of personal fields. Their subject is the aggregate, as in `customer/c-7`, or in a mapping
what a template makes of other fields, such as `customer/{customer}`. A field whose template is None
is not personal."""


@dataclass(frozen=True)
class Personal:
    """The personal fields of a class, each with the template of its subject."""

    templates: tuple[tuple[str, str | None], ...] = ()
    empty: frozenset[str] = frozenset()
    """The fields that may be None."""
    declared: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the personal fields."""
        return tuple(name for name, template in self.templates if template is not None)

    @property
    def has_others(self) -> bool:
        """True if a subject may be another than the aggregate itself."""
        return any(template not in (None, ITSELF) for _, template in self.templates)

    @property
    def known(self) -> frozenset[str]:
        """The fields that were declared personal or not personal."""
        return frozenset(name for name, _ in self.templates)

    def subject(self, name: str, data: Mapping[str, Any], aggregate: str) -> str:
        """The subject of a field."""
        template = dict(self.templates)[name]
        values = {**data, "aggregate": aggregate if "/" in aggregate else ""}
        for _, used, _, _ in string.Formatter().parse(template or ""):
            if used is not None and (
                type(values.get(used)) not in (str, int) or values[used] == ""
            ):
                raise WrongType(
                    f"{name!r} is personal, of the subject {template!r}, and {used!r} is "
                    f"{values.get(used)!r}",
                    hint=f"Give {used!r}, so that the subject is known"
                    if used != "aggregate"
                    else "A decision over several aggregates has none: name a subject by a field",
                )
        return (template or "").format(**values)

    def subjects(self, data: Mapping[str, Any], aggregate: str) -> set[str]:
        """The subjects of the personal fields that are not empty."""
        return {
            self.subject(name, data, aggregate) for name in self.fields if _there(data.get(name))
        }


def personal_fields(what: str, kind: type, fields: PersonalFields | None) -> Personal:
    """The personal fields of a class, checked."""
    if fields is None:
        return Personal()
    if isinstance(fields, str):
        raise InvalidDomain(
            f"The personal fields of {what} are text: {fields!r}",
            hint=f"Give a list of names: personal=[{fields!r}]",
        )
    named = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields, ITSELF)
    hints = typing.get_type_hints(kind)
    there = {field.name for field in dataclasses.fields(kind)}
    for name, template in named.items():
        if name not in there:
            raise InvalidDomain(
                f"{what} has no field {name!r} that could be personal",
                hint=f"{kind.__name__} has: {', '.join(sorted(there)) or 'no fields'}",
            )
        if template is None:
            continue
        if hints[name] not in (str, str | None):
            raise InvalidDomain(
                f"{what} cannot have the personal field {name!r}, which is not text",
                hint="A sealed value is text: declare the field as str, or as str | None",
            )
        _check_template(what, name, template, named, there)
    may_be_none = frozenset(name for name in named if hints[name] is not str)
    return Personal(tuple(named.items()), may_be_none, True)


def personal_metadata_of(domain: str, keys: PersonalFields) -> Personal:
    """The personal keys of metadata, whose templates name other keys of it."""
    named = dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys, ITSELF)
    for name, template in named.items():
        if template is not None:
            _check_template(f"the metadata of {domain!r}", name, template, named, None)
    return Personal(tuple(named.items()), frozenset(), True)


def _there(value: Any) -> bool:
    return value not in (None, "", FORGOTTEN)


def seal_data(
    personal: Personal, data: Data, aggregate: str, place: Place, keys: KeyStore | None
) -> Data:
    """Data as it is stored, its personal fields sealed.

    A field that is None, or reads as forgotten, has nothing to seal.
    """
    names = [name for name in personal.fields if data.get(name) not in (None, FORGOTTEN)]
    if not names:
        return data
    if keys is None:
        raise InvalidDomain(
            f"{names[0]!r} of {place[-1]!r} is personal, and there is no key store to seal it",
            hint="Open the domain with one: bank.open(log, keys=es.KeyStore(path))",
        )
    marks = {name: None if name in personal.empty else FORGOTTEN for name in names}
    sealed = {
        name: keys.seal(
            personal.subject(name, data, aggregate),
            data[name],
            (*place, name),
        )
        for name in names
    }
    return {MARK: marks, **data, **sealed}


def differing(personal: Personal, stored: Data, given: Data) -> list[str]:
    """The fields in which data is not what was stored, as far as that is not forgotten."""
    forgotten = {name for name in personal.fields if stored[name] in (None, FORGOTTEN)}
    return [name for name in given if stored[name] != given[name] and name not in forgotten]


def open_data(data: Data, place: Place, keys: KeyStore | None) -> Data:
    """Data as it was before it was stored. Forgotten fields read as declared."""
    return open_all([(data, place)], keys)[0]


def open_all(stored: Iterable[tuple[Data, Place]], keys: KeyStore | None) -> list[Data]:
    """Data as it was before it was stored, for many at once."""
    opened = []
    found: list[tuple[Data, str, Any]] = []
    sealed: list[tuple[str, Place]] = []
    for data, place in stored:
        if MARK in data:
            data = dict(data)
            for name, forgotten in data.pop(MARK).items():
                if name in data:
                    found.append((data, name, forgotten))
                    sealed.append((data[name], (*place, name)))
        opened.append(data)
    if keys is None:
        for data, name, forgotten in found:
            data[name] = None if forgotten is None else SEALED
        return opened
    for (data, name, forgotten), text in zip(found, keys.open_all(sealed), strict=True):
        data[name] = forgotten if text is None else text
    return opened


def seal_reason(
    reason: str, subjects: Collection[str], stored: Data, place: Place, keys: KeyStore | None
) -> tuple[str, Data]:
    """A refusal's reason and its command's data as they are stored.

    A reason may repeat what it was decided on. So it is sealed for every subject of that, one
    around the other, and is gone with the first of them that is forgotten.
    """
    if not subjects or keys is None:  # without keys, nothing personal was read
        return reason, stored
    try:
        for subject in sorted(subjects):
            reason = keys.seal(subject, reason, (*place, REASON))
    except SubjectForgotten:
        return FORGOTTEN, stored
    return reason, {**stored, MARK: {**stored.get(MARK, {}), REASON: len(subjects)}}


def open_reason(
    reason: str | None, stored: Data, place: Place, keys: KeyStore | None
) -> str | None:
    """The reason of a refusal."""
    subjects = stored.get(MARK, {}).get(REASON, 0)
    if reason is None or not subjects:
        return reason
    if keys is None:
        return SEALED
    for _ in range(subjects):
        text = keys.open(reason, (*place, REASON))
        if text is None:
            return FORGOTTEN
        reason = text
    return reason


def seal_metadata(
    personal: Personal,
    metadata: Mapping[str, str],
    aggregate: str,
    place: Place,
    keys: KeyStore | None,
) -> dict[str, str]:
    """Metadata as it is stored, its personal values sealed."""
    stored = seal_data(personal, dict(metadata), aggregate, (*place, "metadata"), keys)
    return {**stored, MARK: json.dumps(stored[MARK])} if MARK in stored else stored


def open_metadata(stored: Mapping[str, str], place: Place, keys: KeyStore | None) -> dict[str, str]:
    """Metadata as it was before it was stored."""
    if MARK not in stored:
        return dict(stored)
    marked = {**stored, MARK: json.loads(stored[MARK])}
    return open_data(marked, (*place, "metadata"), keys)


def check_names(what: str, kind: type, personal: Personal, elsewhere: Mapping[str, str]) -> None:
    """Raise if a field has the name of one that is personal elsewhere, and is not declared."""
    for field in dataclasses.fields(kind):
        if field.name in elsewhere and field.name not in personal.known:
            raise InvalidDomain(
                f"{what} has a field {field.name!r} that is not declared personal, and that of "
                f"{elsewhere[field.name]} is",
                hint=f"Declare it: personal=[{field.name!r}], or say that it is not: "
                f"personal={{{field.name!r}: None}}",
            )


def _check_template(
    what: str, name: str, template: str, named: Mapping[str, str | None], there: set[str] | None
) -> None:
    try:
        parts = [part for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError:
        parts = []
    if not parts or any(form or turn for _, _, form, turn in parts):
        raise InvalidDomain(
            f"The subject {template!r} of the personal field {name!r} of {what} names no field",
            hint="Name one in braces, such as 'customer/{customer}'",
        )
    for field in [str(part[1]) for part in parts]:
        if there is not None and field not in there and field != "aggregate":
            raise InvalidDomain(
                f"The subject {template!r} of {name!r} names {field!r}, which {what} does not have",
                hint=f"It has: {', '.join(sorted(there))}, and {ITSELF} for the aggregate",
            )
        if named.get(field) is not None:
            raise InvalidDomain(
                f"The subject of the personal field {name!r} of {what} is named by {field!r}, "
                "which is personal too",
                hint="Subjects are stored in clear: name them by an id that says nothing",
            )
