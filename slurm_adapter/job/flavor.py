"""ModelArts flavors: the console's text or a known id becomes what one node must have."""

from __future__ import annotations

import difflib
import re

from slurm_adapter.errors import BadValueError
from slurm_adapter.record import record, replace

_EXAMPLE = "GPU: 8*NVIDIA-V100 | CPU: 72核 | 内存：512GB"
_BYTES_PER_MIB = 2**20
# Decimal units, as the console and memory vendors count; what a node of "512 GB" really offers
# is below 512 GiB, and a request in GiB would never be met by it.
_BYTES = {"M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_BYTES = {"M": 2**20, "G": 2**30, "T": 2**40}

# Full-width signs, as Chinese input methods write them, and what they mean.
_ONE_KIND = str.maketrans("：｜（）＊，", ":|()*,")

_SIZE = r"([0-9]+(?:\.[0-9]+)?) ?([MGT]i?)B"
_CARDS = re.compile(
    rf"(GPU|NPU|ASCEND) ?: ?([0-9]+) ?[*×xX] ?([^,:|]+?)(?: ?\( ?{_SIZE} ?\))?", re.IGNORECASE
)
_CORES = re.compile(
    rf"(CPU|ARM|X86) ?: ?([0-9]+) ?(核|vCPUs?|cores?|core\(s\)|)"
    rf"(?: ?,? ?{_SIZE})?(?: ?,? ?{_SIZE})?",
    re.IGNORECASE,
)
_MEMORY = re.compile(rf"(?:内存|MEMORY|MEM|RAM) ?: ?{_SIZE}", re.IGNORECASE)
_DISK = re.compile(rf"(?:硬盘|磁盘|存储|DISK|STORAGE|SSD) ?: ?{_SIZE}", re.IGNORECASE)


@record
class Flavor:
    """What one node must have."""

    accelerator: str
    """`gpu`, `npu`, or empty for a CPU flavor."""
    cards: int
    """Accelerators per node."""
    model: str
    """The card's product name, as written."""
    cpus: int | None
    """CPU cores per node; None where the text does not say."""
    memory_mib: int | None
    """Memory per node in MiB; None where the text does not say."""
    card_memory_mib: int | None = None
    disk_mib: int | None = None
    most_nodes: int | None = None
    """The most nodes a job of this flavor may have; None where nothing limits it."""


def read_flavor(text: str) -> Flavor:
    """Return the flavor that a console text or a flavor id stands for.

    Texts may be Chinese or English, with either colon, with or without blanks, with the card's
    memory in brackets and a disk part (forms listed in `docs/contract.md`).

    Raises:
        BadValueError: where it cannot be read; nothing is guessed.
    """
    known = _known(text.strip())
    if known is not None:
        return known
    flavor = Flavor(accelerator="", cards=0, model="", cpus=None, memory_mib=None)
    seen: set[str] = set()
    for part in _normal(text).split("|"):
        flavor = _add_part(flavor, part.strip(), seen, text)
    if not flavor.cpus and not flavor.cards:
        raise _unreadable(text, "it names neither cards nor cores")
    return flavor


def _normal(text: str) -> str:
    """Return the text with one kind of colon, bar, bracket and blank."""
    return " ".join(text.translate(_ONE_KIND).split())


def _add_part(flavor: Flavor, part: str, seen: set[str], text: str) -> Flavor:
    kind, changes = _read_part(part)
    if kind in seen:
        raise _unreadable(text, f"{kind} stands in it twice")
    if not kind:
        raise _unreadable(text, f"{part!r} is not understood")
    seen.add(kind)
    if "memory_mib" in changes and changes["memory_mib"] is None:
        del changes["memory_mib"]
    elif "memory_mib" in changes and flavor.memory_mib is not None:
        raise _unreadable(text, "memory stands in it twice")
    return replace(flavor, **changes)


def _read_part(part: str) -> tuple[str, dict[str, object]]:
    if match := _CARDS.fullmatch(part):
        kind, count, model, size, unit = match.groups()
        return "cards", {
            "accelerator": "gpu" if kind.upper() == "GPU" else "npu",
            "cards": int(count),
            "model": model.strip(),
            "card_memory_mib": _mib(size, unit),
        }
    if match := _CORES.fullmatch(part):
        _, count, _, size, unit, disk, disk_unit = match.groups()
        changes: dict[str, object] = {"cpus": int(count), "memory_mib": _mib(size, unit)}
        if disk:
            changes["disk_mib"] = _mib(disk, disk_unit)
        return "cores", changes
    if match := _MEMORY.fullmatch(part):
        return "memory", {"memory_mib": _mib(*match.groups())}
    if match := _DISK.fullmatch(part):
        return "disk", {"disk_mib": _mib(*match.groups())}
    return "", {}


def _mib(size: str | None, unit: str | None) -> int | None:
    if size is None or unit is None:
        return None
    bytes_of_unit = _BINARY_BYTES if unit[1:] in ("i", "I") else _BYTES
    return int(float(size) * bytes_of_unit[unit[0].upper()] // _BYTES_PER_MIB)


def _unreadable(text: str, why: str) -> BadValueError:
    return BadValueError(
        f"the flavor {text!r} cannot be read: {why}",
        f'Write it as the console does, as in "{_EXAMPLE}", or give a flavor id such as'
        " modelarts.p3.8xlarge.public.",
    )


def _cpu(cpus: int, gigabytes: int, disk: int, most_nodes: int | None = None) -> Flavor:
    return Flavor(
        "", 0, "", cpus, _mib(str(gigabytes), "G"), None, _mib(str(disk), "G"), most_nodes
    )


def _cards(kind: str, cards: int, model: str, cpus: int | None, gigabytes: int | None) -> Flavor:
    memory = None if gigabytes is None else _mib(str(gigabytes), "G")
    return Flavor(kind, cards, model, cpus, memory, _mib("32", "G"), _mib("3200", "G"))


# Ids and sizes as the ModelArts API reference and public callers of it give them.
_V100, _ASCEND = "NVIDIA-V100", "Ascend 910"
_FLAVORS = {
    "modelarts.vm.cpu.2u": _cpu(2, 8, 50, most_nodes=1),
    "modelarts.vm.cpu.8u": _cpu(8, 32, 50, most_nodes=16),
    "modelarts.p3.large.public": _cards("gpu", 1, _V100, 8, 64),
    "modelarts.p3.large.public.free": _cards("gpu", 1, _V100, 8, 64),
    "modelarts.p3.8xlarge.public": _cards("gpu", 8, _V100, 72, 512),
    "modelarts.kat1.xlarge": _cards("npu", 1, _ASCEND, 24, 96),
    "modelarts.kat1.2xlarge": _cards("npu", 2, _ASCEND, None, None),
    "modelarts.kat1.4xlarge": _cards("npu", 4, _ASCEND, None, None),
    "modelarts.kat1.8xlarge": _cards("npu", 8, _ASCEND, 192, 768),
}
# Cards of a dedicated pool: how many cores and how much memory come with them is the pool's.
_FLAVORS |= {
    f"modelarts.pool.visual.{size}xlarge": Flavor("gpu", cards, "", None, None)
    for size, cards in (("", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 16))
}
# Ids that exist, but whose size was never published.
_UNSIZED = (
    "modelarts.vm.gpu.v100",
    "modelarts.vm.gpu.p100",
    "modelarts.vm.gpu.p4",
    "modelarts.vm.gpu.t4",
    "modelarts.bm.gpu.v100nv32",
    "modelarts.vm.pnt1.large.eco",
)


def _known(text: str) -> Flavor | None:
    """Return the flavor of an id; None for what is not an id at all."""
    name = text.lower()
    if not name.startswith("modelarts."):
        return None
    for spelling in (name, name.removesuffix(".public"), f"{name}.public"):
        if spelling in _FLAVORS:
            return _FLAVORS[spelling]
    if name in _UNSIZED:
        raise BadValueError(
            f"the size of the flavor {text} was never published",
            f'Write out what a node needs, as in "{_EXAMPLE}", or use --gpus-per-node.',
        )
    near = difflib.get_close_matches(name, _FLAVORS, n=1)
    raise BadValueError(
        f"there is no known flavor {text}",
        (f"Did you mean {near[0]}? " if near else "") + f'Or write it out: "{_EXAMPLE}".',
    )
