"""Tests import what they share as `tests.ROOM.MODULE`; this file makes the type checker name modules the same way."""
