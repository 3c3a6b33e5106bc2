"""Patches: JSON patch, JSON merge patch, strategic merge patch and server-side apply, each from one object to the
next."""

from embedded_cluster.apiserver.patches.patching import patch_object

__all__ = ["patch_object"]
