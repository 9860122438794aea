"""Devices by name."""

from __future__ import annotations

from fsframework.pipeline.learning.model import resolve_device

__all__ = ["resolve_device"]
