"""A scheduler that calls extenders as kube-scheduler does, for clusters without one."""

from app.embedded.scheduler.calls import Call
from app.embedded.scheduler.config import ConfigError, SchedulerConfig, load, relocate, serve_also, takeover
from app.embedded.scheduler.scheduler import Scheduler

__all__ = ["Call", "ConfigError", "Scheduler", "SchedulerConfig", "load", "relocate", "serve_also", "takeover"]
