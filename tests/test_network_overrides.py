"""What the user and the site say of the network, from each place where it can be said."""

import json
from pathlib import Path

import pytest

from commandline import adapter
from netspace import net_space, unavailable
from slurm_adapter.errors import BadValueError
from slurm_adapter.network.overrides import as_options, check_overrides, from_options, over

ALL = {
    "subnet": "10.20.0.0/16",
    "master_suffix": ".hpc.example",
    "storage_hcas": ("mlx5_2", "mlx5_7"),
    "rails": ("mlx5_0", "mlx5_3:1"),
    "gid_index": 3,
    "traffic_class": 106,
    "timeout": 22,
}
DOCS = Path(__file__).parents[1] / "docs/network.md"


def test_options_say_what_a_table_says() -> None:
    assert check_overrides({**ALL, "subnet": "10.20.3.4/16"}) == ALL
    words = as_options(ALL)
    assert words[:2] == ["--network=10.20.0.0/16", "--master-suffix=.hpc.example"]
    pairs = [word.removeprefix("--network-option=") for word in words[2:]]
    assert from_options("10.20.0.0/16", ".hpc.example", pairs) == ALL


def test_the_page_shows_a_table_that_is_right(tmp_path: Path) -> None:
    table = DOCS.read_text().partition("    [network]\n")[2].partition("\n\n")[0]
    (tmp_path / "job.toml").write_text(f'boot = "t.py"\n[network]\n{table}')
    (tmp_path / "t.py").write_text("")
    done = adapter("local", "--dry-run", "--format", "json", "--job", "job.toml", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize(
    ("table", "found", "remedy"),
    [
        ({"subnett": "x"}, "there is no key 'subnett' in [network]", "Its keys are socket_ifname,"),
        (
            {"subnet": "10.0.0.0/99"},
            "network.subnet = '10.0.0.0/99' is not a network",
            "10.20.0.0/16",
        ),
        ({"socket_ifname": "=eth0"}, "is not the name of an interface", '"bond0"'),
        ({"socket_ifname": "x" * 16}, "is not the name of an interface", '"bond0"'),
        ({"master_suffix": "hpc"}, "is not the end of a host's name", '".hpc.example"'),
        ({"master_suffix": ".x;y"}, "is not the end of a host's name", '".hpc.example"'),
        ({"rails": []}, "network.rails = [] is not a list of HCAs", '["mlx5_0"'),
        ({"rails": ["mlx5_0,mlx5_1"]}, "is not a list of HCAs", '["mlx5_0"'),
        ({"gid_index": 256}, "network.gid_index = 256 is not a number from 0 to 255", "3"),
        ({"timeout": True}, "is not a number from 0 to 31", "22"),
        ({"traffic_class": "106"}, "is not a number from 0 to 255", "106"),
        ({"subnet": "10.0.0.0/8", "socket_ifname": "eth0"}, "both choose the network", "Give one"),
    ],
)
def test_what_cannot_be_meant_is_told(table: dict[str, object], found: str, remedy: str) -> None:
    with pytest.raises(BadValueError) as error:
        check_overrides(table, "site.toml")
    assert error.value.found.startswith("site.toml: ")
    assert found in error.value.found
    assert remedy in error.value.remedy


def test_a_choice_takes_the_place_of_another() -> None:
    below = {"subnet": "10.0.0.0/8", "timeout": 20}
    assert over(below, {"socket_ifname": "eth0"}) == {"socket_ifname": "eth0", "timeout": 20}
    assert over(below, {"timeout": 22}) == {"subnet": "10.0.0.0/8", "timeout": 22}


class TestOnTheCommandLine:
    @pytest.mark.parametrize("command", ["sbatch", "ssh", "local"])
    def test_a_wrong_one_is_told(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "t.py").write_text("")
        hosts = ("-H", "gpu01,gpu02") if command == "ssh" else ("-N", "2")
        options = ("--network-option", "rails", "t.py")
        done = adapter(command, *hosts, *options, cwd=tmp_path)
        assert (done.status, done.out) == (2, "")
        assert done.err.splitlines() == [
            "slurm-adapter: --network-option rails has no value",
            "  Write KEY=VALUE, as in --network-option traffic_class=106.",
        ]

    def test_the_script_hands_them_on(self, tmp_path: Path) -> None:
        (tmp_path / "t.py").write_text("")
        (tmp_path / "job.toml").write_text(
            'boot = "t.py"\nnodes = 2\n[network]\nsubnet = "10.1.0.0/16"\nrails = ["mlx5_0"]\n'
        )
        options = ("--job", "job.toml", "--network", "bond0", "--script", "-")
        done = adapter("sbatch", *options, cwd=tmp_path)
        assert done.status == 0, done.err
        assert "--network=bond0" in done.out
        assert "--network-option='rails=mlx5_0'" in done.out
        assert "10.1.0.0" not in done.out


class TestFilesOnANode:
    """A batch file written by hand starts `exec` with nobody before it who could have read them."""

    TEXT = '[network]\nsubnet = "10.9.0.0/24"\n'

    @pytest.fixture(autouse=True)
    def _spaces(self) -> None:
        reason = unavailable()
        if reason:
            pytest.skip(reason)

    def test_are_read_there(self, tmp_path: Path) -> None:
        (tmp_path / "slurm-adapter").mkdir()
        (tmp_path / "slurm-adapter/config.toml").write_text(self.TEXT)
        nets = [("eth0", "10.0.0.1/24"), ("eth1", "10.9.0.1/24")]
        env = {"XDG_CONFIG_HOME": str(tmp_path)}
        with net_space(nets, "10.0.0.1 n0\n10.0.0.2 n1\n10.9.0.1 n0\n10.9.0.2 n1") as space:
            found = json.loads(space.env(env=env).stdout)["set"]
            assert (found["MASTER_ADDR"], found["TP_SOCKET_IFNAME"]) == ("10.9.0.1", "eth1")
            option = json.loads(space.env("--network", "eth0", env=env).stdout)["set"]
            assert (option["MASTER_ADDR"], option["TP_SOCKET_IFNAME"]) == ("n0", "eth0")

    def test_are_told_when_broken(self, tmp_path: Path) -> None:
        (tmp_path / "slurm-adapter").mkdir()
        file = tmp_path / "slurm-adapter/config.toml"
        file.write_text("[network]\nrails = 3\n")
        with net_space([("eth0", "10.0.0.1/24")], "10.0.0.2 n1") as space:
            done = space.env(env={"XDG_CONFIG_HOME": str(tmp_path)})
        assert done.returncode == 2
        assert done.stderr.startswith(f"slurm-adapter: {file}: network.rails = 3 is not a list of")

    def test_the_sites_own_is_for_everybody(self, tmp_path: Path) -> None:
        copied = (
            'cp -r /etc "$0" 2>/dev/null; echo "$1" > "$0/slurm-adapter.toml"'
            ' && mount --bind "$0" /etc'
        )
        (tmp_path / "slurm-adapter").mkdir()
        user = tmp_path / "slurm-adapter/config.toml"
        user.write_text('[network]\nsocket_ifname = "eth1"\n')
        nets = [("eth0", "10.0.0.1/24"), ("eth1", "10.0.1.1/24")]
        with net_space(nets, "10.0.0.2 n1") as space:
            text = '[network]\nsocket_ifname = "eth7"\n'
            assert space.run("sh", "-c", copied, f"{tmp_path}/etc", text).returncode == 0
            done = space.env()
            assert "n0 has no interface eth7 that is up and has an address" in done.stderr
            mine = space.env(env={"XDG_CONFIG_HOME": str(tmp_path)}, form="shell")
            assert "export GLOO_SOCKET_IFNAME=eth1\n" in mine.stdout
