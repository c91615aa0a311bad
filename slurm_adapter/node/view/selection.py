"""Which view a node's ranks get: what its contract is used to, or the best below that.

Never less than was asked for in so many words, and never less without saying what is missing,
why, and how to get it.
"""

from __future__ import annotations

from slurm_adapter.errors import AdapterError, ClusterUnfitError
from slurm_adapter.job.layout import CACHE, HOME, VOLCANO
from slurm_adapter.node.system.namespaces import RefusedError
from slurm_adapter.node.view import view
from slurm_adapter.node.view.spec import ViewSpec
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.plan import NodePlan

_WRAPPERS = ("libnss_wrapper.so", "libnss_wrapper.so.0")


@record
class SelectedView:
    """What a node gives to its rank."""

    level: str
    """`full`, `hosts` or `off`, as `Node.view` has it."""
    namespaces: view.ViewNamespaces | None = None
    """To be entered by the process that becomes the rank; None where there is nothing to enter."""
    wrapper: str = ""
    """The library by which names resolve where no namespaces are to be had; empty: none."""
    warning: str = ""

    def close(self) -> None:
        """Let go of what was prepared; a process that entered it keeps it."""
        if self.namespaces is not None:
            self.namespaces.close()


def select_view(
    plan: NodePlan, environment: Mapping[str, str], *, only_try: bool = False
) -> SelectedView:
    """Prepare the view of one node's ranks; `Node.view` says what to try first.

    Args:
        plan: the node's part of it.
        environment: what the ranks would inherit.
        only_try: make no folder; what is returned tells what the node would give.

    Raises:
        ClusterUnfitError: where what the user asked for by name is not possible here, where
            nodes' names do not resolve, or where a directory of the job is not there.
    """
    spec = ViewSpec(plan, environment, only_try)
    try:
        spec.check_names()
    except AdapterError as error:
        if spec.asked is None and not plan.names_workers:
            return SelectedView("off", warning=_warning(spec, "off", error.found, ""))
        raise
    spec.open_up()
    why, remedy = "", ""
    for level in ("full", "hosts") if spec.wanted == "full" else ("hosts",):
        try:
            namespaces = view.prepare(spec.view(level))
        except RefusedError as refused:
            from slurm_adapter.node.view.diagnosis import explain  # only for words

            why, remedy = explain(refused)
        else:
            return SelectedView(level, namespaces, warning=_warning(spec, level, why, remedy))
        if spec.asked == "full":
            break
    return _without_namespaces(spec, why, remedy)


def _without_namespaces(spec: ViewSpec, why: str, remedy: str) -> SelectedView:
    """Give names by nss_wrapper where it is installed; else the nodes' own names must do.

    Only where scripts need names: under nss_wrapper PyTorch, which asks for IPv6 first, never
    gets to a numeric IPv4 address.
    """
    useful = spec.plan.names_workers and spec.asked != "full"
    wrapper = _find_wrapper() if useful else None
    if spec.asked is not None and wrapper is None:
        raise ClusterUnfitError(
            f"{spec.name} cannot give --view {spec.asked}: {why}",
            f"{remedy} Without --view the job runs with less, and says what.".strip(),
        )
    if wrapper is None:
        return SelectedView("off", warning=_warning(spec, "off", why, remedy))
    spec.write_wrapper_hosts()
    warning = _warning(spec, "wrapper", why, remedy)
    return SelectedView("hosts", wrapper=wrapper, warning=warning)


def _find_wrapper() -> str | None:
    import ctypes

    for name in _WRAPPERS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def _warning(spec: ViewSpec, given: str, why: str, remedy: str) -> str:
    """Return what is missing on this node, why, and how to get it; empty where all is there."""
    missing = []
    if spec.wanted == "full" and given != "full":
        missing.append(
            f"the host name {spec.instance}; {HOME}, {VOLCANO} and {CACHE} (the MA_ variables"
            " name the real directories)"
        )
    if given == "wrapper":
        missing.append(
            "names for ping and for programs of Go (nss_wrapper gives them to others); numeric"
            " addresses as PyTorch's master (it would wait in vain: give it the worker's name)"
        )
    if given == "off" and spec.plan.names_workers:
        missing.append(
            "workers' names as on ModelArts (VC_WORKER_HOSTS and --init_method hold the nodes' own)"
        )
    elif given == "off":
        missing.append("a hosts file of its own (where DNS does not answer, connecting is slow)")
    if not missing:
        return ""
    lesser = "hosts" if given in ("hosts", "wrapper") else "off"
    enough = "" if lesser == spec.asked else f"Give --view {lesser} if that is enough."
    return " ".join(
        filter(
            None,
            (
                f"no {spec.wanted} view on {spec.name}: {why}. Missing there:",
                f"{'; '.join(missing)}.",
                remedy,
                enough,
            ),
        )
    )
