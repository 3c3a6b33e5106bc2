"""Preemption for devices in action: devices kept for a pod, victims evicted, and how a nomination ends."""
