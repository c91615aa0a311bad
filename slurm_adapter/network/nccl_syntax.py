"""How each library writes which interface or HCA it is to use: three syntaxes, one file.

NCCL's lists (`NCCL_SOCKET_IFNAME`, `NCCL_IB_HCA`) hold prefixes; `=` before the list makes them
whole names, `^` before that what is left out. Gloo's holds whole names and knows no signs,
TensorPipe's is a single one (NET-01, NET-02, NET-03). Source: NCCL's documentation of its
environment variables, and the parsers of NCCL, Gloo and TensorPipe.
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


@record
class NcclList:
    """A value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA, taken apart."""

    names: tuple[str, ...]
    exact: bool = False
    """Whether names are whole ones, not prefixes."""
    excludes: bool = False
    """Whether what matches is left out."""

    @classmethod
    def parse(cls, text: str) -> NcclList:
        """Take a value apart as NCCL does."""
        excludes = text.startswith("^")
        rest = text[excludes:]
        exact = rest.startswith("=")
        names = tuple(name for name in rest[exact:].split(",") if name)
        return cls(names, exact, excludes)

    def takes(self, name: str, port: int | None = None) -> bool:
        """Say whether NCCL would use an interface, or a port of an HCA, of this name."""
        return any(self._matches(one, name, port) for one in self.names) is not self.excludes

    def _matches(self, wanted: str, name: str, port: int | None) -> bool:
        wanted, colon, number = wanted.partition(":")
        if colon and port is not None and number != str(port):
            return False
        return name == wanted if self.exact else name.startswith(wanted)


def nccl_form(names: Iterable[str]) -> str:
    """Return a list that NCCL reads as these names and no others."""
    return "=" + ",".join(names)


def gloo_names(variable: str, text: str) -> tuple[str, ...]:
    """Return the names in a value of GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME.

    Raises:
        BadValueError: where it is written as NCCL's (NET-03).
    """
    names = tuple(name for name in text.split(",") if name)
    if not names or any(sign in name for name in names for sign in "^=:"):
        raise BadValueError(
            f"{variable}={text}: whole names are read there, none of NCCL's signs",
            f"Write the interface's name, as in {variable}=eth0, or leave it out.",
        )
    return names
