"""Slurm's node lists: `n[01-03]` to names and back, without any external tool (SL-12).

The grammar is that of Slurm's hostlist expressions: names separated by commas, each with any
number of bracket groups, each group a list of numbers and ranges. The width of a range's lower
bound is the least width of its numbers (SL-01). Order and repetitions are kept.
"""

from __future__ import annotations

from slurm_adapter.errors import NodeListError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_HOSTS = 100_000

_DIGITS = "0123456789"
# Slurm 22.05 refuses a longer range in a list it is given.
_MOST_IN_RANGE = 65_536
# A range's two ends; a text width of 18 digits is what Slurm itself can count in 64 bits.
_MOST_DIGITS = 18


def expand_hostlist(text: str, *, most: int = MOST_HOSTS) -> list[str]:
    """Return the host names that a node list describes, in order.

    In a name with several groups the last one runs fastest (SL-04).

    Raises:
        NodeListError: for a list that is empty, cut short, or otherwise not Slurm's grammar, and
            for one that describes more than `most` hosts (counted before any is built).
    """
    hosts: list[str] = []
    for entry in _entries(text):
        first, *rest = entry.split("[")
        if not rest:
            hosts.append(entry)
        else:
            groups, literals = zip(*[one.split("]") for one in rest], strict=True)
            ranges = [list(_ranges(group, text)) for group in groups]
            _check_count(ranges, most - len(hosts), most, text)
            hosts += _combine([first, *literals], ranges)
        if len(hosts) > most:
            raise _too_many(text, most)
    return hosts


def fold_hostlist(names: Iterable[str]) -> str:
    """Return a node list that expands to exactly these names in this order.

    Neighbours that differ only in their last number share brackets; so do, one level up,
    neighbours that differ only in the number before it (two groups at most: the order of
    three differs between expanders, SL-04).

    Raises:
        NodeListError: where a name is empty or holds a bracket, a comma or white space.
    """
    names = list(names)
    for name in names:
        if not name or not _is_plain(name):
            raise NodeListError(f"{name!r} cannot be a host name", "Give names, not node lists.")
    return ",".join(_fold_outer(_fold_last(names)))


def _is_plain(name: str) -> bool:
    return not ("[" in name or "," in name or "]" in name or name.split() != [name])


def _entries(text: str) -> Iterator[str]:
    """Yield the comma-separated entries; a comma inside brackets does not separate (SL-02)."""
    position, end = 0, len(text)
    if not text.strip():
        raise NodeListError("the node list is empty", 'Give names, as in "n[01-04],login1".')
    while position < end:
        entry_end = _entry_end(text, position)
        entry = text[position:entry_end]
        if not entry:
            raise _malformed(text, position)
        if entry.split() != [entry]:
            raise NodeListError(
                f"white space inside the node list {_shortened(text)}",
                'Separate names by a comma alone, as in "n01,n02".',
            )
        yield entry
        position = entry_end
        if position < end:
            if text[position] != "," or position + 1 == end:
                raise _malformed(text, position)
            position += 1


def _entry_end(text: str, position: int) -> int:
    """Return where the entry that begins at `position` ends, or cannot go on."""
    # Without `re`, which takes 4 ms to load: each rank reads one list or two.
    while position < len(text):
        comma = text.find(",", position) % (len(text) + 1)  # -1, none: the end of the text
        opening = text.find("[", position, comma)
        stray = text.find("]", position, comma if opening < 0 else opening)
        if stray >= 0 or opening < 0:
            return comma if stray < 0 else stray
        closing = text.find("]", opening)
        if closing < 0 or text.find("[", opening + 1, closing) >= 0:
            return opening
        position = closing + 1
    return position


def _ranges(group: str, text: str) -> Iterator[tuple[int, int, int]]:
    """Yield (first, last, width) for each part of a bracket group."""
    for part in group.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            high = low
        if not (_is_countable(low) and _is_countable(high)):
            raise NodeListError(
                f"[{_shortened(group)}] is not a list of numbers in the node list"
                f" {_shortened(text)}",
                "Write numbers and ranges, as in n[1-3,7].",
            )
        first, last = int(low), int(high)
        if last < first:
            raise NodeListError(
                f"the range {part} runs backwards in the node list {_shortened(text)}",
                f"Write it as {high}-{low}.",
            )
        yield first, last, len(low)


def _is_countable(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _check_count(
    groups: Sequence[Sequence[tuple[int, int, int]]], room: int, most: int, text: str
) -> None:
    count = 1
    for group in groups:
        count *= sum(last - first + 1 for first, last, _ in group)
        if count > room:
            raise _too_many(text, most)


def _combine(
    literals: Sequence[str], groups: Sequence[Sequence[tuple[int, int, int]]]
) -> list[str]:
    names = [literals[0]]
    for group, literal in zip(groups, literals[1:], strict=True):
        numbers = [
            number + literal
            for first, last, width in group
            for number in map(f"%0{width}d".__mod__, range(first, last + 1))
        ]
        names = [name + number for name in names for number in numbers]
    return names


def _fold_last(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (prefix, rest): names alike but for the number at their end become one entry.

    Text after the brackets could be read here, but not by Slurm's own commands.
    """
    prefix = ""
    ranges: list[list[str]] = []  # [first, last] as written
    following, room = "", 0
    for name in names:
        before = name.rstrip(_DIGITS)
        number = name[len(before) :]
        foldable = 0 < len(number) <= _MOST_DIGITS
        if ranges and (before != prefix or not foldable):
            yield prefix, _entry(ranges)
            ranges = []
        if not foldable:
            yield name, ""
            continue
        if ranges and number == following and room:
            ranges[-1][1] = number
            room -= 1
        else:
            prefix = before
            ranges.append([number, number])
            room = _MOST_IN_RANGE - 1
        following = str(int(number) + 1).zfill(len(ranges[-1][0]))
    if ranges:
        yield prefix, _entry(ranges)


def _entry(ranges: list[list[str]]) -> str:
    text = ",".join(first if first == last else f"{first}-{last}" for first, last in ranges)
    single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return text if single else f"[{text}]"


def _fold_outer(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Fold entries that end in the same brackets and differ in the last number before them."""
    run: list[str] = []
    shared = ""
    for prefix, rest in entries:
        last = max(map(prefix.rfind, _DIGITS)) + 1 if "[" in rest else 0
        head, end = (prefix[:last], prefix[last:] + rest) if last else (prefix + rest, "")
        if run and (end != shared or not end):
            yield from _fold_run(run, shared)
            run = []
        shared = end
        run.append(head)
    yield from _fold_run(run, shared)


def _fold_run(heads: list[str], end: str) -> Iterator[str]:
    if not end:
        yield from heads
        return
    for prefix, rest in _fold_last(heads):
        yield prefix + rest + end


def _malformed(text: str, position: int) -> NodeListError:
    if text.count("[") > text.count("]"):
        return NodeListError(
            f"the node list {_shortened(text)} ends inside a bracket",
            "It was cut short; give it whole, as in n[01-04].",
        )
    return NodeListError(
        f"the node list {_shortened(text)} cannot be read from character {position + 1} on",
        'Separate names by commas, as in "n[01-04],login1".',
    )


def _too_many(text: str, most: int) -> NodeListError:
    return NodeListError(
        f"the node list {_shortened(text)} describes more than {most:,} hosts",
        "Check the ranges for a digit too many.",
    )


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:60]}...{text[-15:]}")  # noqa: PLR2004
