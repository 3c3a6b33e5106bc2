"""The compiled form of a selector: the common part of the language as one flat Python function.

Promises: the function gives the interpreter's answer, or raises NotFast when something is out of the ordinary: an
attribute is missing or of an unexpected type, an integer overflows. An expression with parts that the generator does
not know has no compiled form; nor has one that might be costly, which `dra_extender.cel.budget` decides.

Python's `and`, `or`, `all` and `any` are those of the language as long as nothing fails. `cel.fragments` says which
other parts of Python are used, and why that is safe.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.api.semver import Semver
from dra_extender.cel.budget import LONGEST_LOOP
from dra_extender.cel.calls import is_sum
from dra_extender.cel.cost import CHEAP
from dra_extender.cel.declarations import Declarations, Function
from dra_extender.cel.errors import Fault
from dra_extender.cel.fragments import SCALARS, Code, Fast, Names, Unsupported
from dra_extender.cel.library.quantities import quantity
from dra_extender.cel.library.versions import semver
from dra_extender.cel.meter import FREE
from dra_extender.cel.paths import Path, Paths
from dra_extender.cel.selection import tests_optional
from dra_extender.cel.syntax import Call, Conditional, Ident, Index, Literal, Logic, Macro, Node, Select

_MAX_DEPTH: Final = 30
_RELATIONS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_RESULTS: Final = {
    "bool": "bool", "int": "int", "string": "str", "kubernetes.Semver": "semver", "list": "list",
}  # fmt: skip


def generate(tree: Node, declarations: Declarations) -> Fast | None:
    """The function of an expression, or None if it is one for the interpreter."""
    generator = _Generator(declarations)
    try:
        result = generator.condition(tree)
    except Unsupported:
        return None
    return generator.names.compiled(result)


class _Generator:
    def __init__(self, declarations: Declarations) -> None:
        self._functions = declarations.functions
        self._paths = Paths()
        self._locals: dict[int, Code] = {}
        self._loops = 0
        self._depth = 0
        self.names = Names()

    # --- Building blocks ----------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> str:
        """A node as a Python bool; anything else stops."""
        return self.names.condition(self.code(node))

    def code(self, node: Node) -> Code:
        """A node as a Python expression."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Unsupported
        path = self._paths.resolve(node)
        if path is not None:
            code = self._path(path)
        else:
            method = self._METHODS.get(node.__class__)
            if method is None:
                raise Unsupported
            code = method(self, node)
        self._depth -= 1
        return code

    def _path(self, path: Path) -> Code:
        if path.optional or path.part == "device":
            raise Unsupported
        if path.part == "driver":
            return Code("view.driver", "str")
        if path.part == "allow_multiple":
            return Code("view.allow_multiple", "bool")
        if path.part == "domains":
            return Code(f"view.{path.section}", "map")
        if path.part == "domain":
            return Code(f"view.{path.section}.get({path.domain!r}, E)", "map")
        if path.section == "capacity":
            return Code(f"c[{path.key!r}]", "quantity")
        return Code(f"a[{path.key!r}]")

    def _presence(self, path: Path) -> Code:
        """True when the entry is there, as Python."""
        if path.part != "entry":
            raise Unsupported
        return Code(f"({path.key!r} in {path.section[0]})", "bool")

    def _literal(self, node: Literal) -> Code:
        return self.names.literal(node.value)

    def _ident(self, node: Ident) -> Code:
        if node.variable is None or node.variable.index not in self._locals:
            raise Unsupported
        return self._locals[node.variable.index]

    def _select(self, node: Select) -> Code:
        path = self._paths.tested(node) if node.test else None
        if path is None:
            raise Unsupported
        return self._presence(path)

    def _index(self, node: Index) -> Code:
        """`domain[key]` with a computed key, `list[0]`."""
        if node.optional:
            raise Unsupported
        operand, key = self.code(node.operand), self.code(node.key)
        path = self._paths.resolve(node.operand)
        if operand.kind == "map" and key.kind == "str":
            if path is not None and path.part == "domain":
                kind = "quantity" if path.section == "capacity" else ""
                return Code(f"entry({operand.text}, {key.text})", kind)
            if path is not None and path.part == "domains":
                return Code(f"{operand.text}.get({key.text}, E)", "map")
        if operand.kind == "list" and key.kind == "int" and key.constant is not None and key.constant >= 0:
            name = self.names.temporary()
            present = f"len({name} := {operand.text}) > {key.text}"
            return Code(f"({name}[{key.text}] if {present} else stop())")
        raise Unsupported

    # --- Logic --------------------------------------------------------------------------------------------------------

    def _logic(self, node: Logic) -> Code:
        operator = " and " if node.is_and else " or "
        return Code(f"({operator.join(self.condition(term) for term in node.terms)})", "bool")

    def _conditional(self, node: Conditional) -> Code:
        if tests_optional(node.then) or tests_optional(node.otherwise):
            raise Unsupported
        test, then, otherwise = self.condition(node.test), self.code(node.then), self.code(node.otherwise)
        kind = then.kind if then.kind == otherwise.kind else ""
        return Code(f"({then.text} if {test} else {otherwise.text})", kind)

    # --- Calls --------------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Code:
        special = self._SPECIAL.get(node.function)
        if special is not None:
            code: Code = special(self, node)
            return code
        if node.function in _RELATIONS:
            return self._relation(node)
        return self._function(node)

    def _function(self, node: Call) -> Code:
        """A call of the function itself, which checks the classes of its arguments."""
        if node.function not in CHEAP:
            raise Unsupported
        function: Function = self._functions[node.function]
        operands = [self.code(operand) for operand in node.operands]
        run = function.free_run(node.overloads)
        results = {overload.result.name for overload in node.overloads}
        kind = _RESULTS.get(results.pop(), "") if len(results) == 1 else ""
        return Code(f"{self.names.of(run)}({', '.join(operand.text for operand in operands)})", kind)

    def _not(self, node: Call) -> Code:
        return Code(f"(not {self.condition(node.args[0])})", "bool")

    def _equal(self, node: Call) -> Code:
        return Code(self._equality(node), "bool")

    def _unequal(self, node: Call) -> Code:
        return Code(f"(not {self._equality(node)})", "bool")

    def _equality(self, node: Call) -> str:
        if is_sum(node.args[0]):
            raise Unsupported
        return self.names.equality(self.code(node.args[0]), self.code(node.args[1]))

    def _relation(self, node: Call) -> Code:
        operator = _RELATIONS[node.function]
        compared = self._compared(node)
        if compared is not None:
            return Code(f"({compared[0]} {operator} {compared[1]})", "bool")
        left, right = self.code(node.args[0]), self.code(node.args[1])
        function = self._functions[node.function].free_run(node.overloads)
        return Code(self.names.relation(left, operator, right, function), "bool")

    def _compared(self, node: Call) -> tuple[str, str] | None:
        """Both sides of `x.compareTo(y) < 0`."""
        call, zero = node.args
        if not (isinstance(call, Call) and call.function == "compareTo" and isinstance(zero, Literal)):
            return None
        return self._ordered(call) if zero.value == 0 and zero.value.__class__ is int else None

    def _ordered(self, call: Call) -> tuple[str, str] | None:
        """Both sides of a comparison of quantities or versions."""
        return self.names.ordered(self.code(call.operands[0]), self.code(call.operands[1]))

    def _greater(self, node: Call) -> Code:
        return self._order(node, ">")

    def _less(self, node: Call) -> Code:
        return self._order(node, "<")

    def _order(self, node: Call, operator: str) -> Code:
        ordered = self._ordered(node)
        if ordered is None:
            return self._function(node)
        return Code(f"({ordered[0]} {operator} {ordered[1]})", "bool")

    def _constructor(self, node: Call) -> Code:
        """`quantity("1Gi")` and `semver("1.0.0")` with a constant are made once."""
        make = quantity if node.function == "quantity" else _version
        argument = node.operands[0]
        if len(node.operands) == 1 and isinstance(argument, Literal):
            try:
                value = make(argument.value)
            except Fault:
                raise Unsupported from None
            return Code(self.names.of(value), node.function, value)
        code = self._function(node)
        return code._replace(kind=node.function)

    def _membership(self, node: Call) -> Code:
        key, container = node.args
        path = self._paths.resolve(container)
        if path is not None and not path.optional and isinstance(key, Literal) and isinstance(key.value, str):
            if path.part == "domain":
                return self._presence(Path("entry", path.section, path.domain, key.value))
            if path.part == "domains":
                return Code(f"({key.value!r} in view.{path.section})", "bool")
        value = self.code(key)
        if isinstance(container, Literal) and container.value.__class__ is list and container.value:
            return Code(self.names.one_of(value, container.value), "bool")
        members = self.code(container)
        if members.kind == "map" and value.kind == "str":
            return Code(f"({value.text} in {members.text})", "bool")
        return Code(
            f"{self.names.of(self._functions['@in'].free_run(node.overloads))}({value.text}, {members.text})", "bool"
        )

    def _text_method(self, node: Call) -> Code:
        """`startsWith`, `endsWith`, `contains`"""
        target, part = self.code(node.operands[0]), self.code(node.operands[1])
        if part.kind != "str" or target.kind not in ("", "str"):
            raise Unsupported
        if node.function == "contains":
            return Code(self.names.checked(target, "str", lambda text: f"({part.text} in {text})"), "bool")
        method = node.function.lower()
        return Code(self.names.checked(target, "str", lambda text: f"{text}.{method}({part.text})"), "bool")

    def _matches(self, node: Call) -> Code:
        target, regex = self.code(node.operands[0]), self.code(node.operands[1])
        if regex.kind != "str" or regex.constant is None or target.kind not in ("", "str"):
            raise Unsupported
        return Code(self.names.matching(target, regex), "bool")

    def _or_value(self, node: Call) -> Code:
        option, default = node.operands
        if isinstance(option, Macro) and option.name == "optMap":
            path = self._entry(option.range)
            self._paths.alias(option.bound[0], path._replace(optional=False))
            body, other = self.code(option.arguments[0]), self.code(default)
            if body.kind not in SCALARS:
                raise Unsupported  # what the optional does to other values is for the interpreter
            kind = body.kind if body.kind == other.kind else ""
            return Code(f"({body.text} if {self._presence(path).text} else {other.text})", kind)
        path, other = self._entry(option), self.code(default)
        kind = "quantity" if path.section == "capacity" and other.kind == "quantity" else ""
        return Code(f"{path.section[0]}.get({path.key!r}, {other.text})", kind)

    def _has_value(self, node: Call) -> Code:
        return self._presence(self._entry(node.operands[0]))

    def _entry(self, node: Node) -> Path:
        path = self._paths.resolve(node)
        if path is None or path.part != "entry" or not path.optional:
            raise Unsupported
        return path

    # --- Macros -------------------------------------------------------------------------------------------------------

    def _macro(self, node: Macro) -> Code:
        if node.name == "bind":
            return self._bind(node)
        if self._loops or node.name not in ("all", "exists", "filter", "map") or len(node.arguments) != 1:
            raise Unsupported
        self._loops += 1
        loop = self._loop(node)
        body = node.arguments[0]
        if node.name == "all" or node.name == "exists":
            function = "all" if node.name == "all" else "any"
            code = Code(f"{function}({self.condition(body)} {loop})", "bool")
        elif node.name == "filter":
            code = Code(f"[{self._locals[node.bound[0].index].text} {loop} if {self.condition(body)}]", "list")
        else:
            code = Code(f"[{self.code(body).text} {loop}]", "list")
        self._loops -= 1
        return code

    def _loop(self, node: Macro) -> str:
        """The `for … in …` of a macro; its variables are known from here on."""
        range_ = self.code(node.range)
        path = self._paths.resolve(node.range)
        if path is None and not _is_short_list(node.range):
            raise Unsupported
        names = [f"v{variable.index}" for variable in node.bound]
        for variable, name in zip(node.bound, names, strict=True):
            self._locals[variable.index] = Code(name)
        if range_.kind == "map" and path is not None:
            self._locals[node.bound[0].index] = Code(names[0], "str")
            if len(names) == 2:
                if path.part != "domain":
                    raise Unsupported
                kind = "quantity" if path.section == "capacity" else ""
                self._locals[node.bound[1].index] = Code(names[1], kind)
                return f"for {names[0]}, {names[1]} in {range_.text}.items()"
            return f"for {names[0]} in {range_.text}"
        if len(names) == 2 or range_.kind not in ("", "list"):
            raise Unsupported
        return f"for {names[0]} in {range_.text if range_.kind == 'list' else f'iterable({range_.text})'}"

    def _bind(self, node: Macro) -> Code:
        """A part of the device is read where it is used; anything else is computed first, as nothing has effects."""
        path = self._paths.resolve(node.range)
        if path is not None and not path.optional and path.part != "device":
            self._paths.alias(node.bound[0], path)
            return self.code(node.arguments[0])
        if self._loops:
            raise Unsupported
        initial, name = self.code(node.range), self.names.temporary()
        self._locals[node.bound[0].index] = Code(name, initial.kind)
        body = self.code(node.arguments[0])
        return Code(f"(({name} := {initial.text}), {body.text})[1]", body.kind)

    _METHODS: Final[dict[type, Any]] = {
        Literal: _literal, Ident: _ident, Select: _select, Index: _index, Logic: _logic, Conditional: _conditional,
        Call: _call, Macro: _macro,
    }  # fmt: skip

    _SPECIAL: Final[dict[str, Any]] = {
        "!_": _not, "_==_": _equal, "_!=_": _unequal, "isGreaterThan": _greater, "isLessThan": _less,
        "quantity": _constructor, "semver": _constructor, "@in": _membership, "startsWith": _text_method,
        "endsWith": _text_method, "contains": _text_method, "matches": _matches, "orValue": _or_value,
        "hasValue": _has_value,
    }  # fmt: skip


def _version(text: str) -> Semver:
    return semver(FREE, text)


def _is_short_list(node: Node) -> bool:
    return isinstance(node, Literal) and node.value.__class__ is list and len(node.value) <= LONGEST_LOOP
