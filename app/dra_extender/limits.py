"""Limits against absurd input: each with its reason, and the test that shows what happens beyond it.

Limits that Kubernetes itself sets stand where its types do (`api.resource`); settings have their defaults in
`scheduling.config`.
"""

from __future__ import annotations

from typing import Final, Self


class Limit(int):
    """A number that knows its `reason`, and the name of the `test` of its rule."""

    reason: str
    test: str

    def __new__(cls, value: int, reason: str, test: str) -> Self:
        made = super().__new__(cls, value)
        made.reason, made.test = reason, test
        return made


FRAMES: Final = Limit(
    5_000,
    "Python frames for the deepest selector that Kubernetes accepts, and its callers: what a process that compiles "
    "selectors passes to sys.setrecursionlimit",
    "test_nesting_is_limited_where_upstream_limits_it",
)

CLAIMS_OF_POD: Final = Limit(
    1_024, "every decision looks up each claim of the pod", "test_a_pod_names_so_many_claims_and_no_more"
)
CLAIMS_OF_OWNER: Final = Limit(
    2_048,
    "claims with one owner. They are read with the claims of its spec. A pod may own `CLAIMS_OF_POD`, and one for "
    "extended resources. Users may write any owner onto a claim",
    "test_so_many_claims_are_found_by_their_owner_and_no_more",
)
REQUESTS_OF_POD: Final = Limit(
    4_096,
    "requests and alternatives of the pod's claims that are not allocated: every decision reads each",
    "test_the_claims_of_a_pod_have_so_many_requests_and_no_more",
)
CONTAINERS_OF_POD: Final = Limit(
    1_000,
    "extended resources are looked up per container, resource and kind of node",
    "test_a_pod_has_so_many_containers_and_no_more",
)
PARTS_OF_POD: Final = Limit(
    1_000,
    "entries of a list, or requirements of the node affinity, that are compared with every node",
    "test_pods_that_lose_something_or_cannot_be_judged_are_left_alone",
)
AMOUNTS_OF_POD: Final = Limit(
    1_000,
    "resources of which the requests of a pod count as used on its node: CPU, memory, storage and huge pages before "
    "others; nodes are compared again and again with what all their pods use",
    "test_a_pod_uses_so_many_resources_of_its_node_and_no_more",
)
PARTS_OF_BUDGETS: Final = Limit(
    2_500,
    "PodDisruptionBudgets of a namespace, with the parts of their selectors, that are compared with every victim; "
    "beyond it every pod of the namespace is protected",
    "test_budgets_that_are_too_large_to_be_looked_at_protect_every_pod_of_the_namespace",
)
PARTS_OF_QUESTION: Final = Limit(
    200_000,
    "parts of budgets that one evaluation of preemption compares with pods, in namespaces with more than 100 parts; "
    "beyond it the other pods of these namespaces count as protected",
    "test_a_question_compares_so_many_parts_of_budgets_and_no_more",
)
BUDGETS_OF_POD: Final = Limit(
    16,
    "PodDisruptionBudgets that select one pod and are counted at each of its evictions; beyond it the pod is protected",
    "test_a_pod_that_too_many_budgets_select_is_protected",
)
PODS_OF_GANG: Final = Limit(
    512,
    "pods that are placed together in one decision; no pod of a larger gang gets a node",
    "test_a_gang_has_so_many_pods_and_no_more",
)

PARTS_OF_GANG: Final = Limit(
    16_000,
    "claims, containers, ports, tolerations and node requirements of all pods of a gang, which one decision compares. "
    "Each claim counts twice more. No pod of a gang with more gets a node",
    "test_the_pods_of_a_gang_have_so_many_parts_and_no_more",
)

REQUESTS_OF_GANG: Final = Limit(
    65_536,
    "requests and alternatives of claims that are not allocated, counted for each pod of a gang that names the claim: "
    "one decision reads each; no pod of a gang with more gets a node",
    "test_the_claims_of_a_gang_have_so_many_requests_and_no_more",
)

CLAIMS_OF_GROUP: Final = Limit(
    100_000,
    "pods of a PodGroup, with the claims that they name, among which the pods of a claim are looked for in one step; "
    "beyond it a claim that is reserved for the group is not released",
    "test_the_pods_of_a_group_name_so_many_claims_and_no_more",
)

VICTIMS_OF_GANG: Final = Limit(
    512,
    "claims among which a gang looks for victims: each may take one joint decision",
    "test_victims_are_looked_for_among_so_many_pods_and_no_more",
)

SHARES_OF_DEVICE: Final = Limit(
    512,
    "shares of one device, whose pods preemption may evict: each may take a decision about all; beyond it no pod is "
    "evicted for the device",
    "test_pods_of_a_device_with_so_many_shares_are_evicted_and_of_no_more",
)
PLANNED_OF_POOL: Final = Limit(
    128,
    "devices of one pool in the plans of pods that are nominated early, each of which is compared with all others; "
    "beyond it no pod is nominated early for the pool",
    "test_so_many_devices_of_a_pool_are_planned_and_no_more",
)

LABELS_OF_OBJECT: Final = Limit(
    1_000,
    "labels that are kept of one object, and as many annotations: a claim may have 50,000, which take 4 MiB; of "
    "more owners only the controller is kept",
    "test_so_many_labels_and_annotations_are_kept_and_no_more",
)

TOLERATIONS_OF_REQUEST: Final = Limit(
    128,
    "eight times what Kubernetes documents and does not check: 40,000 take 9 MiB; a claim with more gets no devices",
    "test_a_request_has_so_many_tolerations_and_no_more",
)

DEPTH_OF_PARAMETERS: Final = Limit(
    500,
    "levels of opaque parameters, about half of what the decoder can read: a claim that can be decoded before its "
    "allocation can be decoded afterwards",
    "test_what_can_be_decoded_before_its_allocation_can_be_decoded_afterwards",
)

DEVICES_OF_NODE: Final = Limit(
    32_768,
    "devices that one node sees, which are put in order in one step; beyond it the pools that come last in the search "
    "are invalid on the node",
    "test_a_node_sees_so_many_devices_and_no_more",
)

REQUIREMENTS_OF_NODE: Final = Limit(
    32_768,
    "requirements in the node selectors of slices that name no node: each node evaluates all of them; "
    "beyond it the largest pools are invalid everywhere",
    "test_a_node_evaluates_so_many_requirements_of_node_selectors_and_no_more",
)
HOLDERS_OF_DEVICE: Final = Limit(
    256,
    "claims, or shares, of a device that reports list, and that sums and filters by namespace consider; the others "
    "are only counted",
    "test_so_many_holders_of_a_device_are_listed_and_the_rest_is_counted",
)

DIGITS_OF_QUANTITY: Final = Limit(
    1_000, "exact arithmetic takes more than linear time", "test_what_does_not_parse_is_named_in_the_error"
)

CHARACTERS_OF_LINE: Final = Limit(
    16 * 2**10, "more than a selector has; longer values of objects would fill logs and terminals", "test_a_line_is_cut"
)

SIZE_OF_DERIVED: Final = Limit(
    4_096,
    "characters of a derived attribute, 16 more for each value of a list: constraints compare all values in one step, "
    "and they are remembered for each device",
    "test_a_derived_attribute_has_a_largest_size",
)

BYTES_OF_SNAPSHOT: Final = Limit(
    256 * 2**20,
    "a cluster of 5,000 nodes has about half of it; a compressed file can become a thousand times larger",
    "test_a_snapshot_that_inflates_too_far_is_refused",
)
CHARACTERS_OF_MANIFESTS: Final = Limit(
    64 * 2**20,
    "counted after each alias of YAML is replaced by its value, and 16 more for each value: a few lines with aliases "
    "can stand for gigabytes",
    "test_manifests_that_expand_too_far_are_refused",
)

VALUES_OF_ATTRIBUTE: Final = Limit(
    256,
    "placement policies tell devices apart by the attributes that selectors read; more values would make each device "
    "different, so a pod whose selectors read such an attribute gets the first devices that fit",
    "test_an_attribute_with_too_many_values_changes_nothing_for_others",
)
PAIRS_OF_GROUP: Final = Limit(
    40_000,
    "devices linked by counters, times those of them that a selector tells apart: policies compare all in one step; "
    "beyond it pods with this selector get the first devices that fit",
    "test_so_many_devices_that_counters_link_are_compared_and_no_more",
)
COMBINATIONS_OF_DEVICE: Final = Limit(
    64,
    "of values of lists, where a gang needs one value of several attributes; each is counted",
    "test_a_device_whose_lists_make_too_many_combinations_counts_as_one_without_them",
)
NODES_OF_REQUEST: Final = Limit(
    65_536, "more than any cluster has", "test_an_invalid_request_gets_an_error_and_no_decision"
)
OBJECTS_OF_REQUEST: Final = Limit(
    100_000, "a request is decoded in one step", "test_an_invalid_request_gets_an_error_and_no_decision"
)
PIECES_OF_BODY: Final = Limit(
    4_096,
    "the parser calls the service for each chunk of a body; these chunks are smaller than a packet",
    "test_a_client_that_holds_a_connection_without_a_request_loses_it",
)
BYTES_OF_QUERY: Final = Limit(
    8 * 2**10, "parameters are parsed in one step", "test_parameters_that_are_too_long_get_an_answer_that_conforms"
)
BYTES_OF_WHATIF: Final = Limit(
    512 * 2**10, "a request is decoded in one step", "test_a_request_that_is_too_large_is_not_read_to_its_end"
)
FIELDS_OF_MESSAGE: Final = Limit(
    1_000, "a message of protobuf is decoded in one step", "test_a_message_has_so_many_fields_and_no_more"
)
BYTES_OF_TOKEN: Final = Limit(
    16 * 2**10, "each token costs a review by the API server", "test_what_is_no_token_is_refused_without_a_question"
)
QUEUED_QUESTIONS: Final = Limit(
    8,
    "a question that waits keeps its connection and its request",
    "test_questions_that_take_long_are_answered_one_at_a_time_and_few_wait",
)
QUEUED_WORK: Final = Limit(
    4_000,
    "deferred work stays in memory until a worker takes it",
    "test_who_asks_most_gives_way_when_there_are_too_many_questions",
)
