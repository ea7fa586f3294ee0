"""Hands the graph of a run to the page, which draws it with vis-network."""

from typing import Any

from conductor_core.run.graph_layout import GraphLayout
from conductor_core.run.values import label


def network_data(layout: GraphLayout) -> dict[str, Any]:
    """Returns the input of the page's graph: pyvis's nodes and edges, and the bands.

    Of the places only the layers and the order within a layer count: the page sizes cards to its window, folds parallel
    steps and wraps rows (``arrange.js``, ``fold.js``).
    """
    # Imported when a graph is drawn: it brings in networkx, IPython and Jinja, and the first paint waits for neither.
    from pyvis.network import Network

    network = Network(directed=True)
    network.toggle_physics(False)
    for node in layout.nodes:
        network.add_node(
            label(node.path),
            label=label(node.path),
            shape="custom",
            y=node.y,
            path=list(node.path),
            layer=node.layer,
        )
    for edge in layout.edges:
        network.add_edge(
            label(edge.source),
            label(edge.target),
            id=f"{label(edge.source)}-{label(edge.target)}",
        )
    nodes, edges, *_ = network.get_network_data()
    return {"nodes": nodes, "edges": edges, "bands": [{"path": list(band.path)} for band in layout.bands]}
