"""Hands the layout of the graph to the page's vis-network."""

from dataclasses import asdict
from typing import Any

from conductor_core.run.graph_layout import GraphLayout
from conductor_core.run.values import label

NOMINAL_PITCH_PX = 260


def network_data(layout: GraphLayout) -> dict[str, Any]:
    """Returns the input of the page's vis-network: pyvis's nodes and edges, the bands, and the drawing's extent."""
    # Imported when a graph is drawn: it brings in networkx, IPython and Jinja, and the first paint waits for neither.
    from pyvis.network import Network

    network = Network(directed=True)
    network.toggle_physics(False)
    for node in layout.nodes:
        network.add_node(
            label(node.path),
            label=label(node.path),
            shape="custom",
            x=node.layer * NOMINAL_PITCH_PX,
            y=node.y,
            fixed=True,
            physics=False,
            path=list(node.path),
            layer=node.layer,
        )
    for edge in layout.edges:
        network.add_edge(
            label(edge.source),
            label(edge.target),
            id=f"{label(edge.source)}-{label(edge.target)}",
            source_dy=edge.source_dy,
            target_dy=edge.target_dy,
            lane=edge.lane and asdict(edge.lane),
        )
    nodes, edges, *_ = network.get_network_data()
    bands = [{**asdict(band), "path": list(band.path)} for band in layout.bands]
    extent = {"layers": layout.layers, "top": layout.top, "bottom": layout.bottom}
    return {"nodes": nodes, "edges": edges, "bands": bands, **extent}
