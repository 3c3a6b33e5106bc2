"""Named formats: `format.dns1123Label().validate(text)` (apiserver pkg/cel/library/format.go, 1.36).

Whether a text is valid, and how many things are wrong with it, is as upstream; the sentences are our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault
from dra_extender.cel.library.times import parse_timestamp
from dra_extender.cel.library.urls import is_url
from dra_extender.cel.values import NONE, Opaque, Option

LIBRARY: Final = Library()

Check = Callable[[str], list[str]]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}")
_BASE64: Final = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


@dataclass(slots=True, eq=False)
class NamedFormat(Opaque):
    """A format: its name, its check, and how long a regular expression its check is worth (for costs)."""

    type_name = "kubernetes.NamedFormat"
    hashable = False
    name: str
    check: Check
    weight: int

    @property
    def identity(self) -> Hashable:
        return self.name


def _pattern(pattern: re.Pattern[str], description: str, limit: int | None = None) -> Check:
    def check(text: str) -> list[str]:
        problems = []
        if limit is not None and len(text.encode()) > limit:
            problems.append(f"must have at most {limit} bytes")
        if pattern.fullmatch(text) is None:
            problems.append(f"must be {description}")
        return problems

    return check


def _prefix(check: Check) -> Check:
    """A name that something will be appended to may end in a dash."""

    def check_prefix(text: str) -> list[str]:
        data = text.encode()
        return check(data[:-2].decode(errors="replace") + "a" if len(data) > 1 and text.endswith("-") else text)

    return check_prefix


def _holds(test: Callable[[str], bool], description: str) -> Check:
    return lambda text: [] if test(text) else [f"must be {description}"]


_label = _pattern(_LABEL, "a lowercase RFC 1123 label", 63)
_subdomain = _pattern(_SUBDOMAIN, "a lowercase RFC 1123 subdomain", 253)
_label_1035 = _pattern(_LABEL_1035, "an RFC 1035 label", 63)


def qualified_name(text: str) -> list[str]:
    """What is wrong with the key of a label."""
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        return ["must be a name with at most one prefix"]
    problems = []
    if prefixes:
        problems += [f"prefix {problem}" for problem in _subdomain(prefixes[0])] if prefixes[0] else ["prefix is empty"]
    if not name:
        problems.append("name is empty")
    elif len(name.encode()) > 63:
        problems.append("name must have at most 63 bytes")
    if _NAME.fullmatch(name) is None:
        problems.append("name must be of letters, digits, '-', '_' and '.'")
    return problems


def label_value(text: str) -> list[str]:
    """What is wrong with the value of a label."""
    problems = ["must have at most 63 bytes"] if len(text.encode()) > 63 else []
    if text and _NAME.fullmatch(text) is None:
        problems.append("must be empty or of letters, digits, '-', '_' and '.'")
    return problems


def _is_date(text: str) -> bool:
    try:
        parse_timestamp(text + "T00:00:00Z")
    except Fault as fault:
        return fault.kind == "overflow"  # the year 0 is a date, though no timestamp
    return True


def _is_datetime(text: str) -> bool:
    date, _, rest = text.lower().partition("t")
    found = _TIME.fullmatch(rest.partition("t")[0])
    return found is not None and _is_date(date) and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


_FORMATS: Final = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", label_value, 40),
    "uri": NamedFormat("URI", _holds(is_url, "an absolute URI"), 1103),
    "uuid": NamedFormat("uuid", _holds(lambda text: _UUID.fullmatch(text) is not None, "a UUID"), 78),
    "byte": NamedFormat("byte", _holds(lambda text: _BASE64.fullmatch(text) is not None, "base64"), 84),
    "date": NamedFormat("date", _holds(_is_date, "a date"), 71),
    "datetime": NamedFormat("datetime", _holds(_is_datetime, "an RFC 3339 date and time"), 71),
}


for _name, _named in _FORMATS.items():
    LIBRARY.function(f"format.{_name}", "-> NamedFormat")(lambda named=_named: named)


@LIBRARY.function("format.named", "string -> optional(NamedFormat)")
def named(name: str) -> Option:
    found = _FORMATS.get(name)
    return NONE if found is None else Option(found)


@LIBRARY.method("validate", "NamedFormat, string -> optional(list(string))")
def validate(format_: NamedFormat, text: str) -> Option:
    problems = format_.check(text)
    return Option(problems) if problems else NONE
