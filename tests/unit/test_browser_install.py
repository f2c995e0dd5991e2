"""Where the tests' browsers come from, and what a person is told who has to install them."""

from __future__ import annotations

import pytest

from tests.browser import install
from tests.browser.install import BROWSERS, CHROMIUM, FIREFOX, command_for, find, may_install, require


def on_path(*programs: str) -> install.Which:
    return lambda program: f"/usr/bin/{program}" if program in programs else None


def test_a_browser_is_found_by_any_of_its_names() -> None:
    assert find(CHROMIUM, on_path("google-chrome", "firefox")) == "/usr/bin/google-chrome"
    assert find(FIREFOX, on_path("google-chrome", "firefox")) == "/usr/bin/firefox"
    assert find(FIREFOX, on_path()) is None


@pytest.mark.parametrize(("root", "prefix"), [(True, ""), (False, "sudo ")])
def test_the_command_is_the_systems_own(monkeypatch: pytest.MonkeyPatch, root: bool, prefix: str) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    debian = command_for(BROWSERS, on_path("apt-get", "dnf"))
    assert (
        debian == f"{prefix}apt-get update && {prefix}apt-get install -y --no-install-recommends chromium firefox-esr"
    )
    assert command_for((FIREFOX,), on_path("dnf")) == f"{prefix}dnf install -y firefox"
    assert "chromium firefox" in command_for(BROWSERS, on_path())
    assert may_install(on_path("apt-get")) is root
    assert not may_install(on_path("dnf"))


def test_a_missing_browser_fails_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "find", lambda *_: None)
    monkeypatch.setattr(install, "may_install", lambda: False)
    assert install.main() == 1
    said = capsys.readouterr().err
    assert "Chromium and Firefox" in said
    assert command_for(BROWSERS) in said
    with pytest.raises(AssertionError, match="Firefox is not installed; run: "):
        require(FIREFOX)
