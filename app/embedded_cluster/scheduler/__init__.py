"""A scheduler that calls extenders as kube-scheduler does, for clusters without one."""

from embedded_cluster.scheduler.calls import Call
from embedded_cluster.scheduler.config import ConfigError, SchedulerConfig, load, relocate, serve_also, takeover
from embedded_cluster.scheduler.scheduler import Scheduler

__all__ = ["Call", "ConfigError", "Scheduler", "SchedulerConfig", "load", "relocate", "serve_also", "takeover"]
