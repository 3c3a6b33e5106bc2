"""What the audit finds at the event of one claim: devices with a second owner."""

from __future__ import annotations

from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.audit import OWNERS, Auditor
from dra_extender.devices.usage import UsageIndex, Uses
from tests.support.devices.objects import make_claim


def test_a_second_owner_is_found_by_the_devices_of_one_claim_and_many_are_left_to_the_check_of_all() -> None:
    """Names of all owners at each of their events would be quadratic."""
    usage, gpu = UsageIndex(lambda pool: None), ("gpu.example.com", "n1", "gpu-0")
    uses: Uses = {(gpu, None): {}}
    stored: dict[str, tuple[ResourceClaim, Uses]] = {}
    auditor = Auditor(usage, lambda pool: None, stored.get)
    kinds = []
    for number in range(OWNERS + 1):
        stored[f"uid-{number}"] = make_claim(f"c{number:02}", 5), uses
        usage.replace(f"uid-{number}", {}, uses)
        kinds.append([(found.kind, len(found.claims)) for found in auditor.owned_twice(uses)])
    assert kinds[:3] == [[], [("device", 2)], [("device", 3)]]
    assert kinds[-2:] == [[("device", OWNERS)], []]
