"""Bind on the happy path."""

from __future__ import annotations

from typing import Any


def test_a_pod_without_claims_is_bound_with_one_write(replay: Any, make: Any, small: list[Any]) -> None:
    async def story(world: Any) -> None:
        world.add(*small, make.pod("p"))
        service = world.service()
        assert await service.bind(world.api.pod("p"), "n1") == ""
        assert world.api.pod("p").spec.node_name == "n1"
        assert service.client.calls == ["bind_pod"]

    replay(story)


def test_a_fresh_claim_takes_three_writes_in_order(replay: Any, make: Any, small: list[Any], devices: Any) -> None:
    async def story(world: Any) -> None:
        world.add(*small, make.claim("c"), make.pod("p", "c"))
        service = world.service()
        world.api.log.clear()
        assert await service.bind(world.api.pod("p"), "n1") == ""
        assert [operation for operation, _ in world.api.log] == ["add_finalizer", "write_status", "bind"]
        claim = world.api.claim("c")
        assert devices(claim) == {("gpu.example.com", "n1", "a")}
        assert [entry.name for entry in claim.status.reserved_for] == ["p"]
        assert ("DevicesAllocated", "claim c: allocated gpu.example.com/n1/a on node n1") in service.client.events

    replay(story)
