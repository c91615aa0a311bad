"""Which hosts a job takes: options, variables and files, left-out hosts, the first N."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import PROJECT
from hostlists import brief
from slurm_adapter import read_hosts
from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.options import Given
from slurm_adapter.config.jobfile import merge, read_job_file
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.options import JobOptions

PAGE = (PROJECT / "docs" / "hosts.md").read_text()
Write = Callable[[str], Path]
SILENT = JobOptions()


def names(source: str, **options: object) -> list[str]:
    return [node.name for node in read_hosts(source, **options).nodes]  # type: ignore[arg-type]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Give a function that writes a host file and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "hosts.txt"
        path.write_bytes(text.encode())
        return path

    return write


class TestChoosing:
    @pytest.mark.parametrize(
        ("exclude", "nodes", "left"),
        [
            ([], None, "n1 n2 n3 n4 m1"),
            ([], 2, "n1 n2"),
            ([], 5, "n1 n2 n3 n4 m1"),
            (["n2"], None, "n1 n3 n4 m1"),
            (["N2.,m1"], None, "n1 n3 n4"),
            (["n[1-2]", "n4"], None, "n3 m1"),
            (["n1", "n1"], 2, "n2 n3"),
        ],
    )
    def test_takes_the_first_of_what_is_left(
        self, exclude: list[str], nodes: int | None, left: str
    ) -> None:
        assert names("n[1-4],m1", exclude=exclude, nodes=nodes) == left.split()

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"nodes": 3}, "3 nodes are wanted, there are 2 in the host list"),
            ({"nodes": 2, "exclude": ["n1"]}, "2 nodes are wanted, there is 1 in"),
            ({"nodes": 0}, "0 nodes are wanted"),
            ({"nodes": -1}, "-1 nodes are wanted"),
            ({"exclude": ["n[2-4]"]}, "'n[3-4]' are not among the hosts"),
            ({"exclude": ["n3"]}, "'n3' is not among the hosts of the host list\nIt has 'n[1-2]'."),
            ({"exclude": ["n[1-2]"]}, "leaves no host"),
            ({"exclude": ["n1:2"]}, "says more than which hosts are meant"),
            ({"exclude": ["x@n1"]}, "says more than which hosts are meant"),
            ({"exclude": [""]}, "no host is named"),
            ({"exclude": ["@big"]}, "there is no group '@big'"),
        ],
    )
    def test_refuses_what_is_not_there(self, options: dict[str, object], said: str) -> None:
        with pytest.raises(BadValueError) as caught:
            names("n[1-2]", **options)
        assert said in str(caught.value)


class TestPrecedence:
    """Option, environment, job file, config file."""

    def chosen(
        self,
        hosts: list[str] | None = None,
        file: Path | None = None,
        files: JobOptions = SILENT,
        environment: JobOptions = SILENT,
    ) -> list[str]:
        words = JobOptions(hosts=hosts and tuple(hosts), hosts_file=file and str(file))
        cluster = choose_nodes(Given(words, environment), files, None)
        return list(map(brief, cluster.nodes))

    def test_is_that_of_all_options(self, write: Write) -> None:
        path = write("f1\n")
        files, one = JobOptions(hosts=("j1",)), JobOptions(hosts=("e1",))
        two, file = JobOptions(hosts=("e[1-2]",)), JobOptions(hosts_file=str(path))
        assert self.chosen(["o1", "o2:2"], files=files, environment=one) == ["o1", "o2 slots=2"]
        assert self.chosen(files=files, environment=two) == ["e1", "e2"]
        assert self.chosen(files=files) == ["j1"]
        assert self.chosen(file=path, files=files, environment=one) == ["f1"]
        assert self.chosen(files=files, environment=file) == ["f1"]

    def test_lets_a_list_choose_from_a_file(self, write: Write) -> None:
        path = write("n[1-4] slots=8 user=x\n")
        assert self.chosen(["n3,n1:2"], path) == ["n3 user=x slots=8", "n1 user=x slots=2"]
        files = JobOptions(hosts_file=str(path))
        assert self.chosen(["n2", "m1"], files=files) == ["n2 user=x slots=8", "m1"]
        with pytest.raises(BadValueError, match="-H: 'm1' is not among the hosts of the host file"):
            self.chosen(["n2,m1"], path)
        with pytest.raises(BadValueError, match="'n2' is given twice"):
            self.chosen(["n2,n2"], path)

    def test_of_what_is_left_out(self) -> None:
        files = JobOptions(hosts=("n[1-4]",), exclude=("n1",))

        def left(
            option: str | None, hosts: str | None = None, variable: str | None = None
        ) -> list[str]:
            words = JobOptions(hosts=hosts and (hosts,), exclude=option and (option,))
            environment = JobOptions(exclude=variable and (variable,))
            cluster = choose_nodes(Given(words, environment), files, 2)
            return [node.name for node in cluster.nodes]

        assert left(None) == ["n2", "n3"]
        assert left(None, variable="n2") == ["n1", "n3"]
        assert left("n[1-2]", variable="n3") == ["n3", "n4"]
        assert left(None, "n[7-9]") == ["n7", "n8"]
        with pytest.raises(BadValueError, match="--exclude: 'n1' is not among the hosts"):
            left("n1", "n[7-9]")

    def test_without_hosts_shows_how_to_name_them(self) -> None:
        with pytest.raises(BadValueError) as caught:
            self.chosen()
        assert "-H gpu01,gpu02" in caught.value.remedy
        assert "--hosts FILE" in caught.value.remedy


class TestTheJobFile:
    def read(self, folder: Path, text: str, name: str = "job.toml") -> JobOptions:
        (folder / name).write_text(text)
        return read_job_file(folder / name)

    def test_names_hosts(self, tmp_path: Path) -> None:
        files = self.read(tmp_path, '[ssh]\nhosts = ["gpu01 slots=8", "gpu[02-04]"]\n')
        cluster = choose_nodes(Given(SILENT, SILENT), files, 2)
        assert list(map(brief, cluster.nodes)) == ["gpu01 slots=8", "gpu02"]

    def test_means_its_host_file_from_where_it_lies(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, '[ssh]\nhosts_file = "h.txt"').hosts_file == f"{tmp_path}/h.txt"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('[ssh]\nhostz = ["n1"]', "there is no key 'ssh.hostz'\nDid you mean hosts?"),
            ('[ssh]\nhosts = "n1"', 'ssh.hosts = "n1" is not a list\nWrite it as in: [ssh] with'),
            ("[ssh]\nhosts = [1]", "ssh.hosts.0 = 1 is not a text in quotes"),
            ("ssh = 1", "ssh = 1 is not a table"),
        ],
    )
    def test_is_refused_with_the_key(self, tmp_path: Path, text: str, said: str) -> None:
        with pytest.raises(BadValueError) as caught:
            self.read(tmp_path, text)
        assert said in str(caught.value)

    def test_lies_on_top_of_the_config_file(self, tmp_path: Path) -> None:
        texts = ('[ssh]\nhosts = ["c1"]\nexclude = ["x"]\n', '[ssh]\nhosts_file = "/h"\n')
        for number, text in enumerate(texts):
            self.read(tmp_path, text, f"{number}.toml")
        config, job = (read_job_file(tmp_path / f"{number}.toml") for number in (0, 1))
        assert merge([config, job]) == JobOptions(hosts_file="/h", exclude=("x",))
        both = merge([job, config])
        assert both == JobOptions(hosts=("c1",), hosts_file="/h", exclude=("x",))


def test_the_job_file_of_the_page_is_understood(tmp_path: Path) -> None:
    section = PAGE[PAGE.index("## Choosing") :]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    path = tmp_path / "job.toml"
    path.write_text("\n".join(lines))
    cluster = choose_nodes(Given(SILENT, SILENT), read_job_file(path), None)
    assert [node.name for node in cluster.nodes] == ["gpu01", "gpu02", "gpu04"]
