"""Where agenttop keeps its files: one function each. Every one can be moved by an environment variable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs

from agenttop.errors import AgenttopError
from agenttop.oslayer import at_home, private_directory


def _override(name: str) -> Path | None:
    value = os.environ.get(name)
    return at_home(value) if value else None


def _made(folder: Path, variable: str) -> Path:
    """The folder, created if need be. Raises AgenttopError when the system refuses."""
    try:
        return private_directory(folder)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = f"set {variable} to a folder you may write to"
        raise AgenttopError(f"the folder {folder} cannot be made: {reason}", hint) from error


def recordings() -> Path:
    """Recordings made without `--out` (`AGENTTOP_RECORDINGS`)."""
    folder = (
        _override("AGENTTOP_RECORDINGS") or Path(platformdirs.user_data_dir("agenttop", False)) / "recordings"
    )
    return _made(folder, "AGENTTOP_RECORDINGS")


def sessions() -> Path:
    """One small private file per running session (`AGENTTOP_RUNTIME`): how `attach` finds it."""
    folder = _override("AGENTTOP_RUNTIME") or _runtime()
    if folder is not None:
        try:
            return private_directory(folder / "sessions")
        except OSError:
            pass  # it is named, but not there: a container, a cron job
    return _made(Path(platformdirs.user_cache_dir("agenttop", False)) / "sessions", "AGENTTOP_RUNTIME")


def _runtime() -> Path | None:
    """The system's folder for what lives as long as the login; None where Linux names none."""
    if sys.platform == "linux" and not os.environ.get("XDG_RUNTIME_DIR"):
        return None
    return Path(platformdirs.user_runtime_dir("agenttop", False))


def config() -> Path:
    """The user's settings (`AGENTTOP_CONFIG`); may not exist."""
    return _override("AGENTTOP_CONFIG") or Path(platformdirs.user_config_dir("agenttop", False))


def engines_file() -> Path:
    """How single engines are reached: keys, certificates, proxies; may not exist."""
    return config() / "engines.toml"


def user_profiles() -> Path:
    """The user's own profiles (`AGENTTOP_PROFILES`); may not exist."""
    return _override("AGENTTOP_PROFILES") or config() / "profiles"


def demo_cache() -> Path:
    """The generated demo model (`AGENTTOP_CACHE`)."""
    folder = _override("AGENTTOP_CACHE") or Path(platformdirs.user_cache_dir("agenttop", False))
    return _made(folder, "AGENTTOP_CACHE")


def bundled_profiles() -> Path:
    """The profiles that come with agenttop: in the wheel, or at the top of a source tree."""
    packaged = Path(__file__).parent / "profiles"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "profiles"
