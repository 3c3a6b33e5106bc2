"""When two running replicas are in the same state: everything that their future rests on, as one hashable value.

What a suspended coroutine remembers counts: where it stands, its local variables, and what lies on its stack (the
iterators of its loops among them), as the garbage collector sees it. What is not understood raises: a state that is
only half seen would be merged with another one.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import types
import weakref
from array import array
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
from cachetools import LRUCache, TTLCache

_PLAIN = frozenset({type(None), int, str, bytes, msgspec.UnsetType})
_NUMBERS = frozenset({bool, float})
_FROZEN: dict[type, bool] = {}
_OF_THE_FRAME = (types.FrameType, types.CodeType)
_MADE: tuple[Iterable[Any], ...] = ([], (), {}, {}.values(), {}.items(), set(), reversed([]))
_ITERATORS: tuple[type, ...] = tuple(type(iter(made)) for made in _MADE)
_AWAITED = ("FutureIter", "async_generator_asend", "coroutine_wrapper")


class Likeness:
    """`names`: by `id`, the objects that all states share, or that other code distinguishes."""

    def __init__(self, names: Mapping[int, str], tokens: Tokens) -> None:
        self._names = names
        self._tokens = tokens

    def of(self, *roots: Any) -> Hashable:
        """Equal for two states that go on alike, whatever happens next."""
        walk = _Walk(self._names, self._tokens)
        return tuple([walk.see(root) for root in roots])


class Tokens:
    """Short names for frozen structs, equal for equal ones. Shared by all replicas of an exploration."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Any, Hashable]] = {}
        self._by_content: dict[Hashable, int] = {}

    def of(self, it: msgspec.Struct, names: Mapping[int, str]) -> Hashable:
        known = self._by_id.get(id(it))
        if known is None:
            walk = _Walk(names, self)
            seen = (type(it).__qualname__, *[walk.see(getattr(it, name)) for name in it.__struct_fields__])
            token = ("#", self._by_content.setdefault(seen, len(self._by_content)))
            known = self._by_id[id(it)] = it, token
        return known[1]


class _Walk:
    """One look at one state. Mutable objects are numbered as they are met, so that sharing is seen."""

    def __init__(self, names: Mapping[int, str], tokens: Tokens) -> None:
        self._names = names
        self._tokens = tokens
        self._met: dict[int, int] = {}
        self._keep: list[Any] = []

    def see(self, it: Any) -> Hashable:
        kind = type(it)
        if kind in _PLAIN:
            return it  # type: ignore[no-any-return] # one of _PLAIN
        if kind in _NUMBERS:
            return kind.__name__, it  # 1, 1.0 and True are equal, and not alike
        name = self._names.get(id(it))
        if name is not None:
            return name
        if kind is tuple:
            return tuple([self.see(part) for part in it])
        if kind not in _FROZEN:
            _FROZEN[kind] = issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen
        if _FROZEN[kind]:
            return self._tokens.of(it, self._names)
        met = self._met.get(id(it))
        if met is not None:
            return ("met", met)
        self._met[id(it)] = len(self._met)
        self._keep.append(it)
        return (kind.__qualname__, self._inside(it))

    def _all(self, parts: Iterable[Any]) -> Hashable:
        return tuple([self.see(part) for part in parts])

    def _inside(self, it: Any) -> Hashable:
        if isinstance(it, types.CoroutineType):
            return it.__qualname__, it.cr_frame.f_lasti if it.cr_frame else -1, self._referents(it)
        if isinstance(it, dict | types.MappingProxyType | LRUCache | TTLCache):
            see = self.see
            return tuple([(see(key), see(value)) for key, value in it.items()])
        if isinstance(it, set | frozenset):
            return tuple(sorted((self.see(part) for part in it), key=repr))
        if isinstance(it, type | types.ModuleType | types.CodeType | types.BuiltinFunctionType | weakref.ref):
            return getattr(it, "__qualname__", "") or getattr(it, "__name__", "")
        if isinstance(it, tuple | list | deque | array):  # tuples with names
            return self._all(it)
        return self._running(it)

    def _running(self, it: Any) -> Hashable:
        """Parts of a computation."""
        if isinstance(it, types.GeneratorType):
            return it.__qualname__, it.gi_frame.f_lasti if it.gi_frame else -1, self._referents(it)
        if isinstance(it, types.AsyncGeneratorType):
            return it.__qualname__, it.ag_frame.f_lasti if it.ag_frame else -1, self._referents(it)
        if type(it).__name__ in _AWAITED:
            return self._referents(it)
        if isinstance(it, types.FunctionType):
            return it.__qualname__, self._all(cell for cell in it.__closure__ or ())
        if isinstance(it, types.CellType):
            return self.see(it.cell_contents) if it != types.CellType() else "empty"
        if isinstance(it, types.MethodType):
            return it.__func__.__qualname__, self.see(it.__self__)
        if isinstance(it, functools.partial):
            return self._all((it.func, it.args, it.keywords))
        if isinstance(it, BaseException):
            return self._all((it.args, vars(it), it.__cause__))
        if isinstance(it, _ITERATORS):
            return self._all(it.__reduce__()[1:])
        if isinstance(it, asyncio.Task):
            return it.get_name(), it.done() or self.see(it.get_coro())
        if isinstance(it, asyncio.Future):
            return "" if not it.done() else repr(it.exception()) if it.exception() else self.see(it.result())
        if isinstance(it, asyncio.TimerHandle):
            return it.when(), it.cancelled()
        return self._fields(it)

    def _referents(self, it: Any) -> Hashable:
        return tuple([self.see(part) for part in gc.get_referents(it) if type(part) not in _OF_THE_FRAME])

    def _fields(self, it: Any) -> Hashable:
        """Objects of classes written in Python, and mutable structs."""
        names: list[str] = []
        for kind in type(it).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names += (slots,) if isinstance(slots, str) else slots
        values = [
            (name, getattr(it, name)) for name in names if name not in ("__weakref__", "__dict__") and hasattr(it, name)
        ]
        values += list(vars(it).items()) if hasattr(it, "__dict__") else []
        if not values and not hasattr(it, "__dict__") and not names:
            raise TypeError(f"nobody knows what is inside of {it!r} ({type(it)})")
        return tuple([(name, self.see(value)) for name, value in values])
