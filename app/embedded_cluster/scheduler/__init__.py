"""A scheduler that calls extenders as kube-scheduler does, for clusters without one."""

from embedded_cluster.scheduler.calls import ExtenderCall
from embedded_cluster.scheduler.config import SchedulerConfig, takeover
from embedded_cluster.scheduler.scheduler import Scheduler

__all__ = ["ExtenderCall", "Scheduler", "SchedulerConfig", "takeover"]
