"""Composition root: the aiohttp application, its command line, and the page in web/."""

from __future__ import annotations
