"""Shared fixtures. A test's category is its folder: unit, sim, loopback, browser, engines."""

from __future__ import annotations
