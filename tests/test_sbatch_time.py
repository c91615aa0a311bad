"""Time limits mean what Slurm means by them, and are written so that nobody misreads them."""

import pytest

from slurm_adapter import Boot, Job
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.sbatch import Script, make_script
from slurm_adapter.launch.script.time_limit import read_time_limit


def script(limit: str) -> Script:
    job = Job(program=Boot("/c/t.py"), code="/c", folder="/f", slurm={"time": limit})
    return make_script(job, ["slurm-adapter"], "/f")


@pytest.mark.parametrize(
    ("text", "written", "warned"),
    [
        pytest.param("90", "01:30:00", False, id="SB-05 90"),
        pytest.param("1:30", "00:02:00", True, id="SB-05 1:30"),
        pytest.param("1:30:00", "01:30:00", False, id="SB-05 1:30:00"),
        pytest.param("2-12", "2-12:00:00", False, id="SB-05 2-12"),
        pytest.param("1-0:30", "1-00:30:00", False, id="SB-05 1-0:30"),
        pytest.param("0", "UNLIMITED", False, id="SB-05 0"),
        pytest.param("72:00", "01:12:00", True, id="SB-05 72:00"),
        pytest.param("00:00:30", "00:01:00", False, id="seconds round up"),
        pytest.param("48:00:00", "2-00:00:00", False, id="two days of hours"),
        pytest.param("1-2:3:4", "1-02:04:00", False, id="all four fields"),
        pytest.param("infinite", "UNLIMITED", False, id="infinite"),
    ],
)
def test_means_what_slurm_means(text: str, written: str, *, warned: bool) -> None:
    limit, warning = read_time_limit(text)
    assert (limit, bool(warning)) == (written, warned)
    made = script(text)
    assert made.summary["time"] == written
    assert made.warnings == ((warning,) if warned else ())
    assert f"#SBATCH --time={written}" in made.text.splitlines()


@pytest.mark.parametrize("text", ["1h", "", "1:2:3:4", "1-", "-5", "1.5", "٣", " 5"], ids=ascii)
def test_sb_05_is_refused(text: str) -> None:
    with pytest.raises(BadValueError, match="not a time limit that Slurm knows") as caught:
        script(text)
    assert "02:00:00" in caught.value.remedy
