"""A scheduler that calls extenders as kube-scheduler does, for clusters without one."""

from embedded_cluster.scheduler.calls import ExtenderCall
from embedded_cluster.scheduler.config import ConfigError, SchedulerConfig, load, relocate, serve_also, takeover
from embedded_cluster.scheduler.scheduler import Scheduler

__all__ = ["ConfigError", "ExtenderCall", "Scheduler", "SchedulerConfig", "load", "relocate", "serve_also", "takeover"]
