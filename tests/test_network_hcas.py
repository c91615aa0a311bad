"""Which HCAs are used, on recorded machines; `machines` says from which report each is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import machines
from machines import Hca, build
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.gids import NcclVersion
from slurm_adapter.network.hcas import Hcas, choose_hcas
from slurm_adapter.network.rdma import read_ports
from slurm_adapter.network.topology import gpus_near

OLD, NEW = NcclVersion((2, 20, 5), "recorded"), NcclVersion((2, 21, 5), "recorded")
UNKNOWN = NcclVersion(None, "none found")


def chosen(
    root: Path,
    hcas: Sequence[Hca],
    nccl: NcclVersion = NEW,
    given: dict[str, str] | None = None,
    **overrides: Any,
) -> Hcas:
    """Build the machine and choose."""
    ports = read_ports(str(build(root, hcas)))
    return choose_hcas("n1", ports, given or {}, overrides, lambda: nccl)


def settings(found: Hcas) -> dict[str, str]:
    return {setting.name: setting.value for setting in found.settings}


class TestRecordedMachines:
    @pytest.mark.parametrize(
        ("machine", "old", "new"),
        [
            pytest.param(
                machines.DGX_A100,
                {"NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_6,mlx5_7,mlx5_8,mlx5_11"},
                {},
                id="eight rails of InfiniBand, storage on Ethernet",
            ),
            pytest.param(
                machines.ROCE_BOND,
                {"NCCL_IB_HCA": "=mlx5_bond_0", "NCCL_IB_GID_INDEX": "3"},
                {},
                id="NET-06: a RoCE bond",
            ),
            pytest.param(
                machines.ROCE_IPV6,
                {"NCCL_IB_HCA": "=bnxt_re0,bnxt_re1", "NCCL_IB_GID_INDEX": "3"},
                {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
                id="RoCE with IPv6 addresses",
            ),
            pytest.param(
                machines.MIXED,
                {"NCCL_IB_HCA": "=mlx5_0,mlx5_3,mlx5_4"},
                {},
                id="NET-07: link layers mixed, one port down",
            ),
            pytest.param(
                machines.POD,
                {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_IB_GID_INDEX": "7"},
                {},
                id="a container with some of the host's",
            ),
            pytest.param(machines.NONE, {}, {}, id="none"),
            pytest.param(
                machines.ALL_ROCE,
                {
                    "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
                    "NCCL_IB_GID_INDEX": "3",
                },
                {},
                id="all RoCE, one slower",
            ),
        ],
    )
    def test_get_what_works_there(
        self, tmp_path: Path, machine: tuple[Hca, ...], old: dict[str, str], new: dict[str, str]
    ) -> None:
        assert settings(chosen(tmp_path / "old", machine, OLD)) == old
        kept = {name: value for name, value in old.items() if name != "NCCL_IB_GID_INDEX"}
        assert settings(chosen(tmp_path / "new", machine, NEW)) == kept | new

    def test_say_why_a_port_is_left_out(self, tmp_path: Path) -> None:
        assert dict(chosen(tmp_path / "dgx", machines.DGX_A100).rejected) == {
            "mlx5_4:1": "not active",
            "mlx5_9:1": "Ethernet beside InfiniBand: NCCL cannot mix them",
        }
        assert dict(chosen(tmp_path / "pod", machines.POD).rejected) == {
            "mlx5_2:1": "no address here: it belongs to another container, or has no IP address"
        }
        (slower,) = chosen(tmp_path / "roce", machines.ALL_ROCE).rejected
        assert slower[0] == "mlx5_4:1"
        assert slower[1].startswith("50 Gb/s beside 200: taken for storage or management")

    def test_an_unknown_nccl_gets_the_index_that_any_can_use(self, tmp_path: Path) -> None:
        found = chosen(tmp_path, machines.ROCE_BOND, UNKNOWN)
        (_, index) = found.settings
        assert (index.name, index.value) == ("NCCL_IB_GID_INDEX", "3")
        assert "assumed to need it" in index.reason


def test_net_02_one_device_is_not_eleven(tmp_path: Path) -> None:
    """NET-02: as a prefix `mlx5_1` would be mlx5_10 and mlx5_11, too."""
    hcas = [Hca(f"mlx5_{n}", state="ACTIVE" if n == 1 else "DOWN") for n in range(12)]
    assert settings(chosen(tmp_path, hcas)) == {"NCCL_IB_HCA": "=mlx5_1"}


class TestHints:
    def test_storage_is_left_out(self, tmp_path: Path) -> None:
        found = chosen(tmp_path, machines.MIXED, storage_hcas=("mlx5_3",))
        assert settings(found) == {"NCCL_IB_HCA": "=mlx5_0,mlx5_4"}
        assert ("mlx5_3:1", "storage, as the site's override has it") in found.rejected

    def test_rails_keep_their_order(self, tmp_path: Path) -> None:
        found = chosen(tmp_path, machines.MIXED, rails=("mlx5_4", "mlx5_0"), traffic_class=106)
        assert settings(found) == {"NCCL_IB_HCA": "=mlx5_4,mlx5_0", "NCCL_IB_TC": "106"}

    def test_rails_that_are_not_there_stop_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(ClusterUnfitError) as error:
            chosen(tmp_path, machines.MIXED, rails=("mlx5_0", "mlx5_5"))
        assert error.value.found == (
            "n1 cannot use mlx5_5, which the rails of its site file name (mlx5_5:1: not active)"
        )

    def test_say_what_only_the_site_knows(self, tmp_path: Path) -> None:
        found = chosen(
            tmp_path, machines.ROCE_BOND, OLD, gid_index=3, traffic_class=160, timeout=22
        )
        assert settings(found) == {
            "NCCL_IB_HCA": "=mlx5_bond_0",
            "NCCL_IB_GID_INDEX": "3",
            "NCCL_IB_TC": "160",
            "NCCL_IB_TIMEOUT": "22",
        }


class TestWhatTheUserHasSet:
    def test_wins(self, tmp_path: Path) -> None:
        given = {"NCCL_IB_HCA": "mlx5_0:1,mlx5_3:1", "NCCL_IB_TC": "96"}
        found = chosen(tmp_path, machines.MIXED, given=given, traffic_class=106)
        assert settings(found) == {}
        assert [port.device for port in found.ports] == ["mlx5_0", "mlx5_3"]

    @pytest.mark.parametrize(
        ("machine", "given", "found", "remedy"),
        [
            (
                machines.MIXED,
                {"NCCL_IB_HCA": "=mlx5"},
                "n1: NCCL_IB_HCA==mlx5 takes none of its ports",
                "Active on n1: mlx5_0:1, mlx5_2:1, mlx5_3:1, mlx5_4:1.",
            ),
            (
                machines.MIXED,
                {"NCCL_IB_HCA": "mlx5_5"},
                "n1: NCCL_IB_HCA=mlx5_5 takes only mlx5_5:1, not active",
                "Active on n1: mlx5_0:1, mlx5_2:1, mlx5_3:1, mlx5_4:1.",
            ),
            (
                machines.NONE,
                {"NCCL_IB_HCA": "mlx5"},
                "n1: NCCL_IB_HCA=mlx5 names an HCA, and there is no RDMA device",
                "Leave NCCL_IB_HCA out",
            ),
            (
                machines.ROCE_BOND,
                {"NCCL_IB_GID_INDEX": "5"},
                "n1: NCCL_IB_GID_INDEX=5 is no address of mlx5_bond_0:1",
                "Its RoCE v2 addresses: 3 (200.0.209.6).",
            ),
        ],
    )
    def test_must_be_there(
        self,
        tmp_path: Path,
        machine: tuple[Hca, ...],
        given: dict[str, str],
        found: str,
        remedy: str,
    ) -> None:
        """NET-08, for HCAs."""
        with pytest.raises(ClusterUnfitError) as error:
            chosen(tmp_path, machine, given=given)
        assert error.value.found == found
        assert remedy in error.value.remedy

    def test_may_exclude_what_is_not_there(self, tmp_path: Path) -> None:
        """ModelArts presets `^mlx5_bond_0` on machines of every kind."""
        given = {"NCCL_IB_HCA": "^mlx5_bond_0"}
        assert chosen(tmp_path / "none", machines.NONE, given=given).ports == ()
        assert len(chosen(tmp_path / "mixed", machines.MIXED, given=given).ports) == 4

    def test_net_06_a_link_local_index_gets_a_warning(self, tmp_path: Path) -> None:
        """NET-06."""
        found = chosen(tmp_path, machines.ROCE_BOND, given={"NCCL_IB_GID_INDEX": "1"})
        (warning,) = found.warnings
        assert "NCCL_IB_GID_INDEX=1 is RoCE v2 fe80::ac0:ebff:feda:1cfb on mlx5_bond_0:1" in warning

    def test_can_be_to_do_without(self, tmp_path: Path) -> None:
        found = chosen(tmp_path, machines.MIXED, given={"NCCL_IB_DISABLE": "1"})
        assert (found.settings, found.ports) == ((), ())


def test_where_none_can_be_used_nccl_is_told_and_so_is_the_user(tmp_path: Path) -> None:
    found = chosen(tmp_path, [Hca("mlx5_0", state="DOWN"), Hca("mlx5_1", "Ethernet", state="INIT")])
    assert settings(found) == {"NCCL_IB_DISABLE": "1"}
    assert found.warnings == (
        "n1 uses no RDMA, NCCL goes over sockets: mlx5_0:1: not active; mlx5_1:1: not active",
    )


def test_different_slots_on_each_port_are_told_to_an_old_nccl_s_user(tmp_path: Path) -> None:
    """NVIDIA/nccl#890: one index for all, though each macvlan has its own."""
    table = machines.addresses
    hcas = [
        Hca("mlx5_1", "Ethernet", gbps=100, gids=table("fe80::1", "10.1.0.1")),
        Hca("mlx5_2", "Ethernet", gbps=100, gids=table("fe80::2", "10.2.0.1", start=4)),
    ]
    old = chosen(tmp_path / "old", hcas, OLD)
    assert settings(old) == {"NCCL_IB_HCA": "=mlx5_1,mlx5_2"}
    assert "no GID index is right for all of mlx5_1:1, mlx5_2:1" in old.warnings[0]
    assert chosen(tmp_path / "new", hcas, NEW).warnings == ()


def test_addresses_far_down_a_table_are_found(tmp_path: Path) -> None:
    """Of a container on a host with many: what stands before belongs to others."""
    hca = Hca("mlx5_1", "Ethernet", gids=machines.addresses("fe80::1", "10.1.0.1", start=140))
    (port,) = read_ports(str(build(tmp_path, [hca], slots=256)))
    assert [(gid.index, gid.shown) for gid in port.gids if gid.is_routable] == [(143, "10.1.0.1")]


def test_gpus_are_shown_beside_their_hca(tmp_path: Path) -> None:
    switch = "pci0000:00/0000:00:01.0/0000:a0:00.0"
    gpus = [(f"{switch}/0000:b1:00.0/0000:d0:00.0", 0), ("pci0000:80/0000:80:01.0/0000:e0:00.0", 1)]
    root = build(tmp_path, [*machines.DGX_A100[:1], Hca("mlx5_8", numa=1)], gpus)
    assert gpus_near(str(root), ["mlx5_0", "mlx5_8"]) == {
        "mlx5_0": "GPU 0 behind the same PCI switch",
        "mlx5_8": "GPU 1 on the same NUMA node (1)",
    }
