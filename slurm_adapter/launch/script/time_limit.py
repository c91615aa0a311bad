"""Slurm's time limits, which mean other things than they look like (SB-05)."""

from __future__ import annotations

import re

from slurm_adapter.errors import BadValueError

_FORMS = re.compile(
    r"(?:(?P<days>[0-9]+)-(?P<day_hours>[0-9]+)(?::(?P<day_minutes>[0-9]+)(?::(?P<day_seconds>[0-9]+))?)?"
    r"|(?P<hours>[0-9]+):(?P<minutes>[0-9]+):(?P<seconds>[0-9]+)"
    r"|(?P<two_minutes>[0-9]+):(?P<two_seconds>[0-9]+)"
    r"|(?P<only_minutes>[0-9]+))"
)
UNLIMITED = "UNLIMITED"


def read_time_limit(text: str) -> tuple[str, str]:
    """Return (the limit in a form that nobody misreads, a warning or nothing).

    sbatch(1), `--time`: one number is minutes, two fields are minutes:seconds, three are
    hours:minutes:seconds; with days the first field is hours. Seconds round up to a minute;
    0 is no limit.

    Raises:
        BadValueError: for anything else, `1h` among it.
    """
    if text.upper() in (UNLIMITED, "INFINITE", "0"):
        return UNLIMITED, ""
    match = _FORMS.fullmatch(text)
    if match is None:
        raise BadValueError(
            f"{text!r} is not a time limit that Slurm knows",
            "Write HOURS:MINUTES:SECONDS or DAYS-HOURS, as in 02:00:00 or 1-12.",
        )
    part = {name: int(value) for name, value in match.groupdict(default="0").items()}
    seconds = (
        (part["days"] * 24 + part["day_hours"] + part["hours"]) * 3600
        + (part["day_minutes"] + part["minutes"] + part["two_minutes"] + part["only_minutes"]) * 60
        + (part["day_seconds"] + part["seconds"] + part["two_seconds"])
    )
    if not seconds:
        return UNLIMITED, ""
    minutes = -(-seconds // 60)
    written = write_minutes(minutes)
    warning = ""
    if match["two_minutes"] is not None:
        warning = f"time={text} is minutes:seconds to Slurm: {written} (hours need three fields)"
    return written, warning


def write_minutes(minutes: int) -> str:
    """Return minutes as `HH:MM:00`, with days in front from one day on."""
    days, rest = divmod(minutes, 24 * 60)
    clock = f"{rest // 60:02d}:{rest % 60:02d}:00"
    return f"{days}-{clock}" if days else clock
