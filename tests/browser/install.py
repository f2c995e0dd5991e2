"""`python -m tests.browser.install`: finds the browsers the tests drive, or installs them where it may.

Where it may not, it names the one command that a person has to run, and exits with 1.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

Which = Callable[[str], str | None]
"""Returns the path of a program, or None, as shutil.which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """One browser: the programs it may be called by, and the packages that bring it."""

    name: str
    programs: tuple[str, ...]
    packages: dict[str, str]


CHROMIUM = Browser(
    name="Chromium",
    programs=("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"),
    packages={"apt-get": "chromium", "dnf": "chromium", "pacman": "chromium", "zypper": "chromium", "apk": "chromium"},
)
FIREFOX = Browser(
    name="Firefox",
    programs=("firefox-esr", "firefox"),
    packages={"apt-get": "firefox-esr", "dnf": "firefox", "pacman": "firefox", "zypper": "firefox", "apk": "firefox"},
)
BROWSERS = (CHROMIUM, FIREFOX)

_INSTALL = {
    "apt-get": "apt-get install -y --no-install-recommends",
    "dnf": "dnf install -y",
    "pacman": "pacman -S --noconfirm",
    "zypper": "zypper install -y",
    "apk": "apk add",
}


def find(browser: Browser, which: Which = shutil.which) -> str | None:
    """Return the path of `browser`'s program, or None."""
    return next((path for program in browser.programs if (path := which(program))), None)


def require(browser: Browser) -> str:
    """Return the path of `browser`'s program; a test without its browser fails and says what to run."""
    path = find(browser)
    if path is None:
        raise AssertionError(f"{browser.name} is not installed; run: {command_for((browser,))}")
    return path


def command_for(missing: tuple[Browser, ...], which: Which = shutil.which) -> str:
    """Return the one command that installs `missing` on this system, for a person to run."""
    names = " ".join(browser.name.lower() for browser in missing)
    if platform.system() == "Darwin":
        return f"brew install --cask {names}"
    for manager, install in _INSTALL.items():
        if which(manager):
            packages = " ".join(browser.packages[manager] for browser in missing)
            prefix = "" if os.geteuid() == 0 else "sudo "
            update = f"{prefix}apt-get update && " if manager == "apt-get" else ""
            return f"{update}{prefix}{install} {packages}"
    return f"your system's package manager, for {names}"


def may_install(which: Which = shutil.which) -> bool:
    """Whether this process may install Debian's packages itself."""
    return platform.system() == "Linux" and os.geteuid() == 0 and which("apt-get") is not None


def main() -> int:
    """Find or install every browser; return the exit status."""
    missing = tuple(browser for browser in BROWSERS if find(browser) is None)
    if missing and may_install():
        print(f"installing {' and '.join(browser.name for browser in missing)} for the browser tests", flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["bash", "-c", command_for(missing)], check=False, env=environment)
        missing = tuple(browser for browser in BROWSERS if find(browser) is None)
    for browser in BROWSERS:
        if browser not in missing:
            print(f"{browser.name}: {find(browser)}")
    if missing:
        print(
            f"The browser tests need {' and '.join(browser.name for browser in missing)}. Install with:",
            file=sys.stderr,
        )
        print(f"    {command_for(missing)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
