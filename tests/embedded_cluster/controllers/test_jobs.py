"""Jobs on the embedded cluster, asked for with kubectl as people do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.controllers.jobrules import TRACKING
from embedded_cluster.kubelet import EXIT_CODE, RUN_SECONDS
from embedded_cluster.scheduler import SchedulerConfig
from tests.support.embedded.kubectl import Kubectl, needs_kubectl, rows

Json = dict[str, Any]


@pytest.fixture
async def cluster(cluster: EmbeddedCluster) -> AsyncIterator[EmbeddedCluster]:
    """With a scheduler; pods of Jobs run for a tenth of a second, and failed ones are replaced soon."""
    await cluster.schedule_with("", SchedulerConfig())
    cluster.kubelet.job_seconds = 0.1
    cluster.controllers.jobs.first_pause = 0.05
    yield cluster


@pytest.fixture
def kubectl(cluster: EmbeddedCluster, tmp_path: Path) -> Kubectl:
    return Kubectl(cluster.kubeconfig, tmp_path)


def job(name: str = "j", policy: str = "Never", annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    pod = {"restartPolicy": policy, "containers": [{"name": "main", "image": "busybox:1"}]}
    template = {"metadata": {"annotations": annotations or {}}, "spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def status(cluster: EmbeddedCluster, name: str = "j") -> Json:
    found: Json = cluster.store.get("jobs", name, "default") or {}
    return dict(found.get("status", {}))


def reasons(cluster: EmbeddedCluster, name: str = "j") -> dict[str, str]:
    conditions = status(cluster, name).get("conditions") or []
    return {found["type"]: found["reason"] for found in conditions if found["status"] == "True"}


async def over(cluster: EmbeddedCluster, name: str = "j") -> None:
    await cluster.wait_until(lambda: {"Complete", "Failed"} & set(reasons(cluster, name)), what=f"{name} is over")


@needs_kubectl
async def test_a_job_of_kubectl_runs_to_its_end(cluster: EmbeddedCluster, kubectl: Kubectl) -> None:
    assert await kubectl("create", "job", "hello", "--image=busybox:1", "--", "echo", "hello") == (
        "job.batch/hello created\n"
    )
    done = await kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=90s")
    assert done == "job.batch/hello condition met\n"
    assert rows(await kubectl("get", "jobs"))[1][:3] == ["hello", "Complete", "1/1"]
    listed = rows(await kubectl("get", "pods", "-l", "job-name=hello"))
    assert [row[1:4] for row in listed[1:]] == [["0/1", "Completed", "0"]]
    described = await kubectl("describe", "job", "hello")
    assert "1 Succeeded / 0 Failed" in described
    await cluster.wait_until(lambda: ("Completed", "Job completed") in cluster.events("default", "hello"))
    assert await kubectl("logs", "job/hello") == "# no containers run in this cluster\n"
    assert await kubectl("delete", "job", "hello") == 'job.batch "hello" deleted\n'
    await cluster.wait_until(lambda: not cluster.pods())


@needs_kubectl
async def test_a_cron_job_is_refused_with_the_remedy(kubectl: Kubectl) -> None:
    told = await kubectl("create", "cronjob", "c", "--image=busybox:1", "--schedule=* * * * *", code=1)
    assert "spec.schedule: Forbidden: the embedded cluster runs no CronJobs; create a Job instead" in told
    assert "No resources found" in await kubectl("get", "cronjobs", "--all-namespaces", "--ignore-not-found") + (
        await kubectl.shell("kubectl get cronjobs")
    )


async def test_completions_are_reached_by_no_more_pods_at_once_than_parallelism(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(completions=5, parallelism=2)])
    most = 0

    def count() -> bool:
        nonlocal most
        most = max(most, sum(1 for pod in cluster.pods() if not pod.finished))
        return "Complete" in reasons(cluster)

    await cluster.wait_until(count, interval=0.005)
    assert (status(cluster)["succeeded"], len(cluster.pods()), most) == (5, 5, 2)
    assert "active" not in status(cluster)
    assert all(TRACKING not in pod.metadata.finalizers for pod in cluster.pods())


async def test_a_job_fails_after_as_many_pods_as_its_limit_and_one(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(annotations={EXIT_CODE: "3"}, backoffLimit=2)])
    await over(cluster)
    assert reasons(cluster) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert status(cluster)["failed"] == 3
    assert [pod.status.phase for pod in cluster.pods()] == ["Failed"] * 3


async def test_with_on_failure_the_pod_is_started_again_until_the_limit(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(policy="OnFailure", annotations={EXIT_CODE: "1"}, backoffLimit=2)])
    await over(cluster)
    assert reasons(cluster)["Failed"] == "BackoffLimitExceeded"
    assert status(cluster)["failed"] == 1, "one pod, which was started three times"


async def test_a_job_that_takes_too_long_is_ended(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(annotations={RUN_SECONDS: "600"}, activeDeadlineSeconds=1)])
    await over(cluster)
    assert reasons(cluster)["Failed"] == "DeadlineExceeded"
    await cluster.wait_until(lambda: not cluster.pods())


async def test_a_suspended_job_waits_and_a_finished_one_goes(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(suspend=True, ttlSecondsAfterFinished=0)])
    await cluster.wait_until(lambda: reasons(cluster) == {"Suspended": "JobSuspended"})
    assert cluster.pods() == []
    path = "/apis/batch/v1/namespaces/default/jobs/j"
    await cluster.client.patch(path, msgspec.json.encode({"spec": {"suspend": False}}))
    await cluster.wait_until(lambda: cluster.store.get("jobs", "j", "default") is None)
    await cluster.wait_until(lambda: not cluster.pods())
    await cluster.wait_until(lambda: ("Resumed", "Job resumed") in cluster.events("default", "j"))
    assert cluster.events("default", "j")[0] == ("Suspended", "Job suspended")


async def test_indexed_pods_know_their_index(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(completionMode="Indexed", completions=3, parallelism=3)])
    await over(cluster)
    assert status(cluster)["completedIndexes"] == "0-2"
    pods = cluster.store.list("pods", "default")
    assert sorted(pod["spec"]["hostname"] for pod in pods) == ["j-0", "j-1", "j-2"]
    assert all(pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX" for pod in pods)


async def test_pods_that_are_deleted_are_counted_and_made_again(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(annotations={RUN_SECONDS: "600"})])
    await cluster.wait_until(lambda: [pod.status.phase for pod in cluster.pods()] == ["Running"])
    (first,) = cluster.pods()
    await cluster.delete("pods", first.metadata.name, "default")
    await cluster.wait_until(lambda: status(cluster).get("failed") == 1)
    await cluster.wait_until(lambda: [pod.metadata.uid for pod in cluster.pods()] not in ([], [first.metadata.uid]))
    assert reasons(cluster) == {}


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_a_job_that_is_deleted_leaves_no_pod_held(cluster: EmbeddedCluster, propagation: str) -> None:
    await cluster.apply([job(annotations={RUN_SECONDS: "600"})])
    await cluster.wait_until(lambda: [pod.status.phase for pod in cluster.pods()] == ["Running"])
    body = msgspec.json.encode({"propagationPolicy": propagation})
    await cluster.client.delete("/apis/batch/v1/namespaces/default/jobs/j", body)
    await cluster.wait_until(lambda: cluster.store.get("jobs", "j", "default") is None)
    if propagation != "Orphan":
        await cluster.wait_until(lambda: not cluster.pods())
        return
    await cluster.wait_until(lambda: [pod.metadata.finalizers for pod in cluster.pods()] == [()])
    await cluster.delete("pods", cluster.pods()[0].metadata.name, "default")
    await cluster.wait_until(lambda: not cluster.pods())


async def test_a_node_that_is_gone_takes_its_worker_along(cluster: EmbeddedCluster) -> None:
    await cluster.apply([job(annotations={RUN_SECONDS: "600"})])
    await cluster.wait_until(lambda: [pod.status.phase for pod in cluster.pods()] == ["Running"])
    (first,) = cluster.pods()
    await cluster.delete("nodes", first.spec.node_name)
    await cluster.wait_until(
        lambda: (
            [pod.status.phase for pod in cluster.pods()] == ["Running"]
            and (cluster.pods()[0].metadata.uid != first.metadata.uid)
        )
    )
    assert status(cluster)["failed"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backoffLimitPerIndex", 1),
        ("podFailurePolicy", {"rules": []}),
        ("successPolicy", {"rules": []}),
        ("managedBy", "example.com/other"),
        ("podReplacementPolicy", "Failed"),
    ],
)
async def test_what_the_controller_does_not_do_is_refused(cluster: EmbeddedCluster, field: str, value: Any) -> None:
    body = job(**{field: value})
    with pytest.raises(Exception, match=f"spec.{field}: Forbidden: the embedded cluster .*leave the field out"):
        await cluster.client.create("/apis/batch/v1/namespaces/default/jobs", msgspec.json.encode(body))
