"""Which part of the device a node reads, where the text says so."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from dra_extender.cel.device import ReadSet
from dra_extender.cel.syntax import Call, Ident, Index, Macro, Node, Select, Variable
from dra_extender.cel.syntax import Literal as LiteralNode

Part = Literal["device", "driver", "allow_multiple", "domains", "domain", "entry"]

_FIELDS: Final[dict[str, Part]] = {"driver": "driver", "allowMultipleAllocations": "allow_multiple"}


class Path(NamedTuple):
    """A part of the device: all of it, a field, all domains of a section, one domain, or one entry."""

    part: Part
    section: str = ""
    domain: str = ""
    id: str = ""
    optional: bool = False

    @property
    def key(self) -> str:
        """The key of an entry in the flat dicts of a DeviceView."""
        return f"{self.domain}/{self.id}"

    def step(self, key: str, optional: bool) -> Path | None:
        """The part that a selection leads to."""
        optional = optional or self.optional
        if self.part == "device":
            if key in ("attributes", "capacity"):
                return Path("domains", key, optional=optional)
            field = _FIELDS.get(key)
            return None if field is None or optional else Path(field)
        if self.part == "domains":
            return Path("domain", self.section, key, optional=optional)
        if self.part == "domain":
            return Path("entry", self.section, self.domain, key, optional)
        return None


class Paths:
    """Resolves nodes to paths. Variables of `cel.bind` that stand for a part of the device are aliases of it."""

    def __init__(self) -> None:
        self._aliases: dict[int, Path] = {}

    def alias(self, variable: Variable, path: Path) -> None:
        self._aliases[variable.index] = path

    def resolve(self, node: Node) -> Path | None:
        """The part of the device a node stands for, or None. A test (`has`) stands for none."""
        if isinstance(node, Ident):
            if node.variable is not None:
                return self._aliases.get(node.variable.index)
            return Path("device")
        if isinstance(node, Select) and not node.test:
            operand = self.resolve(node.operand)
            return None if operand is None else operand.step(node.field, node.optional)
        if isinstance(node, Index) and isinstance(node.key, LiteralNode) and isinstance(node.key.value, str):
            operand = self.resolve(node.operand)
            return None if operand is None else operand.step(node.key.value, node.optional)
        return None

    def tested(self, node: Select) -> Path | None:
        """The part whose presence `has(…)` tests."""
        operand = self.resolve(node.operand)
        return None if operand is None else operand.step(node.field, False)


def collect_reads(tree: Node) -> ReadSet:
    """What an expression reads of a device."""
    reader = _Reader()
    reader.visit(tree)
    return ReadSet(
        driver=reader.driver,
        allow_multiple=reader.allow_multiple,
        entries=tuple(sorted(reader.entries)),
        domains=tuple(sorted(reader.domains)),
        everything=reader.everything,
    )


class _Reader:
    def __init__(self) -> None:
        self.driver = self.allow_multiple = self.everything = False
        self.entries: set[tuple[str, str, str]] = set()
        self.domains: set[tuple[str, str]] = set()
        self._paths = Paths()

    def visit(self, node: Node) -> None:
        path = self._paths.resolve(node)
        if path is not None:
            self._read(path)
            return
        if isinstance(node, Select) and node.test:
            path = self._paths.tested(node)
            if path is not None:
                if path.part != "domain":  # every domain is there
                    self._read(path)
                return
        if isinstance(node, Call) and node.function == "@in" and self._visit_membership(node):
            return
        if isinstance(node, Macro) and node.name == "bind":
            path = self._paths.resolve(node.range)
            if path is not None and not path.optional:
                self._paths.alias(node.bound[0], path)
                self.visit(node.arguments[0])
                return
        for child in node.children:
            self.visit(child)

    def _visit_membership(self, node: Call) -> bool:
        """`"name" in domain` and `"domain" in device.attributes` read only that."""
        key, container = node.args
        path = self._paths.resolve(container)
        if path is None or path.optional or not isinstance(key, LiteralNode) or not isinstance(key.value, str):
            return False
        if path.part == "domain":
            self.entries.add((path.section, path.domain, key.value))
        elif path.part == "domains":
            self.domains.add((path.section, key.value))
        else:
            return False
        return True

    def _read(self, path: Path) -> None:
        if path.part == "entry":
            self.entries.add((path.section, path.domain, path.id))
        elif path.part == "driver":
            self.driver = True
        elif path.part == "allow_multiple":
            self.allow_multiple = True
        else:
            self.everything = True
