"""Types of every part of an expression: cel-go's checker (checker/checker.go, v0.26).

Promises to accept and refuse what the API server does. The first mistake is reported; types, overloads and variables
are written into the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel import syntax, types
from dra_extender.cel.declarations import Overload
from dra_extender.cel.environment import MESSAGES, Environment, global_name, hint_for_overload, no_overload, undeclared
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import Expr, Variable, dotted, walk
from dra_extender.cel.types import Substitution, Type, TypeTooLarge, list_of, map_of
from dra_extender.cel.values import UInt
from dra_extender.cel.work import Work

_COPIED: Final = 64
"""How many variables of a scope are copied per unit of work."""

_LITERALS: Final[dict[type, Type]] = {
    bool: types.BOOL, int: types.INT, UInt: types.UINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES,
    type(None): types.NULL,
}  # fmt: skip


def check(expression: str, tree: Expr, language: Environment, work: Work) -> Type:
    """The type of an expression. Raises CelCompileError and WorkExceeded."""
    checker = _Checker(expression, language, work)
    try:
        checker.check(tree)
        nodes = walk(tree)
        for node, kind in zip(nodes, checker.bound.resolve_all([node.type for node in nodes]), strict=True):
            node.type = kind
    except TypeTooLarge as error:
        raise CelCompileError(str(error)) from None
    return tree.type


class _Checker:
    def __init__(self, expression: str, language: Environment, work: Work) -> None:
        self._expression = expression
        self._functions = language.functions
        self._fields = language.fields
        self._work = work
        self._scope: dict[str, Variable] = {}
        self._variables = 0
        self._fresh = 0
        self.bound = Substitution(work)

    def check(self, node: Expr) -> Type:
        """The type of a node, which is also noted in it."""
        kind: Type = self._METHODS[node.__class__](self, node)
        node.type = kind
        return kind

    def _error(self, message: str, node: Expr, hint: str = "") -> CelCompileError:
        return CelCompileError(message, self._expression, node.offset, hint)

    def _new_variable(self) -> Type:
        self._fresh += 1
        return types.param(f"_{self._fresh}")

    def _require(self, node: Expr, wanted: Type, found: Type) -> None:
        if not self.bound.fits(found, wanted):
            raise self._error(f"expected type '{wanted}' but found '{self._shown(found)}'", node)

    def _shown(self, kind: Type) -> str:
        return str(self.bound.resolve(kind, unbound_to_dyn=True))

    def _literal(self, node: syntax.Literal) -> Type:
        return _LITERALS[node.value.__class__]

    def _ident(self, node: syntax.Ident) -> Type:
        name = node.name.removeprefix(".")
        variable = self._scope.get(name)
        if variable is not None:
            node.variable = variable
            return variable.type
        if name == "device":
            return types.DEVICE
        found = global_name(name)
        if found is None:
            raise undeclared(self._expression, node, name, "the only variable is device")
        kind, node.constant = found
        return kind

    def _select(self, node: syntax.Select) -> Type:
        name = None if node.test or node.optional else dotted(node, self._work)
        if name is not None:
            found = global_name(name.removeprefix("."))
            if found is not None:
                kind, node.constant = found
                return kind
        kind = self._field(node)
        if node.test:
            return types.BOOL
        return self.bound.resolve(kind)

    def _field(self, node: syntax.Select) -> Type:
        operand = self.bound.resolve(self.check(node.operand))
        unwrapped = operand.params[0] if operand.is_optional else operand
        if unwrapped.kind == "map":
            kind = unwrapped.params[1]
        elif unwrapped == types.DEVICE:
            kind = self._member(node)
        elif unwrapped.kind == "param":
            self.bound.fits(types.DYN, unwrapped)
            kind = types.DYN
        elif unwrapped.is_dynamic:
            kind = types.DYN
        else:
            raise self._error(f"type '{unwrapped}' does not support field selection", node)
        return types.optional_of(kind) if operand.is_optional or node.optional else kind

    def _member(self, node: syntax.Select) -> Type:
        kind = self._fields.get(node.field)
        if kind is None:
            raise self._error(f"undefined field '{node.field}'", node, f"fields: {', '.join(sorted(self._fields))}")
        return kind

    def _call(self, node: syntax.Call) -> Type:
        arguments = list(map(self.check, node.args))
        target = node.target
        if target is not None:
            prefix = dotted(target, self._work)
            qualified = f"{prefix.removeprefix('.')}.{node.function}" if prefix is not None else ""
            if qualified in self._functions:
                node.function, node.target, target = qualified, None, None
        if target is not None:
            arguments.insert(0, self.check(target))
        else:
            node.function = node.function.removeprefix(".")
        kind, node.overloads = self._resolve(node, node.function, target is not None, tuple(arguments))
        return kind

    def _result(self, node: Expr, function: str, *arguments: Type, member: bool = False) -> Type:
        return self._resolve(node, function, member, arguments)[0]

    def _resolve(
        self, node: Expr, name: str, member: bool, arguments: tuple[Type, ...]
    ) -> tuple[Type, tuple[Overload, ...]]:
        """The type of a call and the overloads that fit; dyn when they differ in it."""
        function = self._functions.get(name)
        if function is None:
            raise undeclared(self._expression, node, name)
        fitting: list[Overload] = []
        result: Type | None = None
        for overload in function.overloads:
            if overload.member != member or len(overload.params) != len(arguments):
                continue
            self._work.charge(1)
            fresh: dict[str, Type] = {}
            if not self.bound.fit_all(arguments, tuple([self._renewed(kind, fresh) for kind in overload.params])):
                continue
            fitting.append(overload)
            found = self.bound.resolve(self._renewed(overload.result, fresh))
            if result is None:
                result = found
            elif not result.is_dynamic and found != result:
                result = types.DYN
        if result is None:
            shown = [self._shown(kind) for kind in arguments]
            hint = hint_for_overload(name, member, [self.bound.resolve(kind) for kind in arguments])
            raise no_overload(self._expression, node, name, member, shown, hint)
        return result, tuple(fitting)

    def _renewed(self, kind: Type, fresh: dict[str, Type]) -> Type:
        """The type with `fresh` type variables, which are made as they are met."""
        if not kind.is_open:
            return kind
        if kind.kind == "param":
            if kind.name not in fresh:
                fresh[kind.name] = self._new_variable()
            return fresh[kind.name]
        return Type(kind.kind, kind.name, tuple([self._renewed(part, fresh) for part in kind.params]))

    def _index(self, node: syntax.Index) -> Type:
        operand, key = self.check(node.operand), self.check(node.key)
        return self._result(node, "_[?_]" if node.optional else "_[_]", operand, key)

    def _logic(self, node: syntax.Logic) -> Type:
        for term in node.terms:
            self._require(term, types.BOOL, self.check(term))
        return types.BOOL

    def _conditional(self, node: syntax.Conditional) -> Type:
        return self._result(node, "_?_:_", self.check(node.test), self.check(node.then), self.check(node.otherwise))

    def _join(self, joined: Type | None, kind: Type) -> Type:
        """The type of elements of both types. Mixed literals are refused later, unless they are for format."""
        if joined is None:
            return kind
        return types.most_general(joined, kind) if self.bound.fits(joined, kind) else types.DYN

    def _unwrapped(self, node: Expr, optional: bool) -> Type:
        kind = self.check(node)
        if not optional:
            return kind
        if kind.is_optional:
            return kind.params[0]
        if not kind.is_dynamic:
            raise self._error(f"expected an optional but found '{self._shown(kind)}'", node)
        return kind

    def _list(self, node: syntax.ListNode) -> Type:
        joined: Type | None = None
        for element, optional in zip(node.elements, node.optional, strict=True):
            joined = self._join(joined, self._unwrapped(element, optional))
        return list_of(self._new_variable() if joined is None else joined)

    def _map(self, node: syntax.MapNode) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in zip(node.keys, node.values, node.optional, strict=True):
            keys = self._join(keys, self.check(key))
            values = self._join(values, self._unwrapped(value, optional))
        if keys is None or values is None:
            return map_of(self._new_variable(), self._new_variable())
        return map_of(keys, values)

    def _message(self, node: syntax.Message) -> Type:
        node.name = node.name.removeprefix(".")
        message = MESSAGES.get(node.name)
        if message is None:
            raise undeclared(self._expression, node, node.name)
        for field, value, optional in zip(node.fields, node.values, node.optional, strict=True):
            wanted = message.fields.get(field)
            if wanted is None:
                raise self._error(f"undefined field '{field}'", node)
            self._require(value, wanted, self._unwrapped(value, optional))
        return message.type

    def _macro(self, node: syntax.Macro) -> Type:
        if node.name == "bind":
            return self._within(node, (self.check(node.range),), self.check, node.arguments[0])
        if node.name == "optMap" or node.name == "optFlatMap":
            return self._unwrapping(node)
        if node.name == "sortBy":
            return self._sorting(node)
        kinds = self._ranges(node, self.check(node.range))
        return self._within(node, kinds, self._fold, node, kinds)

    def _within(self, node: syntax.Macro, kinds: tuple[Type, ...], find: Callable[..., Type], *about: Any) -> Type:
        """What `find` finds in the scope of a macro, whose variables have these types."""
        outer = self._scope
        bound = []
        for name, kind in zip(node.variables, kinds, strict=True):
            bound.append(Variable(name, kind, self._variables))
            self._variables += 1
        node.bound = tuple(bound)
        self._work.charge(len(outer) // _COPIED)
        self._scope = {**outer, **{variable.name: variable for variable in bound}}
        kind = find(*about)
        self._scope = outer
        return self.bound.resolve(kind)

    def _unwrapping(self, node: syntax.Macro) -> Type:
        """`o.hasValue() ? optional.of(body) : optional.none()`, without `optional.of` for optFlatMap."""
        target = self.check(node.range)
        self._result(node, "hasValue", target, member=True)
        value = self._result(node, "value", target, member=True)
        body = self._within(node, (value,), self.check, node.arguments[0])
        if node.name == "optMap":
            body = self._result(node, "optional.of", body)
        return self._result(node, "_?_:_", types.BOOL, body, self._result(node, "optional.none"))

    def _sorting(self, node: syntax.Macro) -> Type:
        """`list.@sortByAssociatedKeys(list.map(x, key))`"""
        target = self.check(node.range)
        element = self._ranges(node, target)[0]
        key = self._within(node, (element,), self.check, node.arguments[0])
        keys = self._appended(node, key)
        kind, overloads = self._resolve(node, "@sortByAssociatedKeys", True, (target, keys))
        node.keyed = len(overloads) == 1
        return kind

    def _ranges(self, node: syntax.Macro, range_: Type) -> tuple[Type, ...]:
        """The types of the variables of a loop."""
        range_ = self.bound.resolve(range_)
        two = len(node.variables) == 2
        if range_.kind == "list":
            return (types.INT, range_.params[0]) if two else range_.params
        if range_.kind == "map":
            return range_.params if two else range_.params[:1]
        if range_.kind == "dyn" or range_.kind == "param":
            self.bound.fits(types.DYN, range_)
            return (types.DYN, types.DYN) if two else (types.DYN,)
        hint = "attributes can be iterated only with the feature DRAListTypeAttributes" if range_ == types.ANY else ""
        raise self._error(
            f"expression of type '{range_}' cannot be range of a comprehension (must be list, map, or dynamic)",
            node.range,
            hint,
        )

    def _fold(self, node: syntax.Macro, kinds: tuple[Type, ...]) -> Type:
        """The type of the result of a loop, whose variables are in scope."""
        name = node.name
        *tests, body = node.arguments
        if name == "all" or name == "exists":
            self._require(body, types.BOOL, self.check(body))
            return types.BOOL
        if name == "exists_one" or name == "existsOne":
            self._result(body, "_?_:_", self.check(body), types.INT, types.INT)
            return types.BOOL
        if name == "filter":
            element = self._appended(node, kinds[0])
            return self._result(body, "_?_:_", self.check(body), element, element)
        test = self.check(tests[0]) if tests else types.BOOL
        if name == "map" or name == "transformList":
            step = self._appended(node, self.check(body))
        else:
            step = self._inserted(node, kinds[0], self.check(body))
        return self._result(node, "_?_:_", test, step, step)

    def _appended(self, node: Expr, element: Type) -> Type:
        """The type of `[] + [element]`."""
        return self._result(node, "_+_", list_of(self._new_variable()), list_of(element))

    def _inserted(self, node: syntax.Macro, key: Type, value: Type) -> Type:
        """The type of an empty map after an entry, or the entries of a map, were inserted."""
        empty = map_of(self._new_variable(), self._new_variable())
        if node.name == "transformMap":
            return self._result(node, "cel.@mapInsert", empty, key, value)
        return self._result(node, "cel.@mapInsert", empty, value)

    _METHODS: Final[dict[type, Any]] = {
        syntax.Literal: _literal, syntax.Ident: _ident, syntax.Select: _select, syntax.Index: _index,
        syntax.Call: _call, syntax.Logic: _logic, syntax.Conditional: _conditional, syntax.ListNode: _list,
        syntax.MapNode: _map, syntax.Message: _message, syntax.Macro: _macro,
    }  # fmt: skip
