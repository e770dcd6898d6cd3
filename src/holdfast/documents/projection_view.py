"""The drawing of a projection: the streams that it reads, and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.projection_operations import sources_of
from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView

if TYPE_CHECKING:
    from holdfast.core.rows import Run


def of_run(row: Run) -> GraphView:
    """Each source with a way to the projection."""
    name, sources = row.key or row.workflow, sorted(sources_of(row))
    streams = tuple(GraphNode(id=f"stream:{source}", label=source, kind="stream") for source in sources)
    own = GraphNode(id=name, label=name, kind="projection", state=row.status, detail=f"at position {row.base:,}")
    edges = tuple(GraphEdge(source=stream.id, target=name, taken=row.base > 0) for stream in streams)
    return GraphView(kind="projection", direction="LR", nodes=(*streams, own), edges=edges)
