"""The parts of the device that an expression reads."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dra_extender.cel.device import FIELDS, ReadSet, Section
from dra_extender.cel.syntax import Call, Expr, Ident, Index, Macro, Select, Variable
from dra_extender.cel.syntax import Literal as LiteralNode


class Path(NamedTuple):
    """A part of the device: all of it, a field, all domains of a section, one domain, or one entry. `name` is that of
    the field, or the section: `attributes` or `capacity`.
    """

    part: Literal["device", "field", "domains", "domain", "entry"]
    name: str = ""
    domain: str = ""
    id: str = ""
    optional: bool = False

    def step(self, key: str, optional: bool) -> Path | None:
        """The part that a selection leads to."""
        optional = optional or self.optional
        if self.part == "device":
            if key in ("attributes", "capacity"):
                return Path("domains", key, optional=optional)
            return None if key not in FIELDS or optional else Path("field", key)
        if self.part == "domains":
            return Path("domain", self.name, key, optional=optional)
        if self.part == "domain":
            return Path("entry", self.name, self.domain, key, optional)
        return None


def collect_reads(tree: Expr) -> ReadSet:
    """What an expression reads of a device."""
    reader = _Reader()
    pending = [tree]
    while pending:
        pending += reversed(reader.visit(pending.pop()))
    return ReadSet(
        fields=tuple(sorted(reader.fields)),
        entries=tuple(sorted(reader.entries)),
        domains=tuple(sorted(reader.domains)),
        everything=reader.everything,
    )


class _Reader:
    def __init__(self) -> None:
        self.everything = False
        self.fields: set[str] = set()
        self.entries: set[tuple[Section, str, str]] = set()
        self.domains: set[tuple[Section, str]] = set()
        self._aliases: dict[Variable, Path] = {}
        """Variables of `cel.bind` that stand for a part of the device."""

    def visit(self, node: Expr) -> tuple[Expr, ...]:
        """Note what the node reads. The parts of it that are still to be visited."""
        path = self._resolve(node)
        if path is not None:
            self._read(path)
            return ()
        if isinstance(node, Select) and node.test:
            operand = self._resolve(node.operand)
            path = None if operand is None else operand.step(node.field, False)
            if path is None:
                return (node.operand,)
            if path.part != "domain":  # every domain is there
                self._read(path)
            return ()
        if isinstance(node, Call) and node.function == "@in" and self._reads_membership(node):
            return ()
        if isinstance(node, Macro) and node.name == "bind":
            path = self._resolve(node.range)
            if path is not None and not path.optional:
                self._aliases[node.bound[0]] = path
                return node.arguments
        return node.children

    def _resolve(self, node: Expr) -> Path | None:
        """The part of the device a node stands for, or None. A test (`has`) stands for none."""
        if isinstance(node, Ident):
            return Path("device") if node.variable is None else self._aliases.get(node.variable)
        if isinstance(node, Select) and not node.test:
            key = node.field
        elif isinstance(node, Index) and isinstance(node.key, LiteralNode) and isinstance(node.key.value, str):
            key = node.key.value
        else:
            return None
        operand = self._resolve(node.operand)
        return None if operand is None else operand.step(key, node.optional)

    def _reads_membership(self, node: Call) -> bool:
        """`"name" in domain` and `"domain" in device.attributes` read only that."""
        key, container = node.args
        path = self._resolve(container)
        if path is None or path.optional or not isinstance(key, LiteralNode) or not isinstance(key.value, str):
            return False
        if path.part == "domain":
            self.entries.add((path.name, path.domain, key.value))
        elif path.part == "domains":
            self.domains.add((path.name, key.value))
        else:
            return False
        return True

    def _read(self, path: Path) -> None:
        if path.part == "entry":
            self.entries.add((path.name, path.domain, path.id))
        elif path.part == "field":
            self.fields.add(path.name)
        else:
            self.everything = True
