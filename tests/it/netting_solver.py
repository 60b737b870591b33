"""Reads graphs from standard input, a JSON list of [debtor, creditor, amount] a line, and prints for
each the largest total that can be cleared with every net position unchanged, found by networkx.

Nobody has any supply, and every obligation earns one a unit: the cheapest flow is the largest
circulation.
"""
import json
import sys

import networkx

for line in sys.stdin:
    graph = networkx.MultiDiGraph()
    for debtor, creditor, amount in json.loads(line):
        graph.add_edge(debtor, creditor, capacity=amount, weight=-1)
    cost, _ = networkx.network_simplex(graph)
    print(-cost)
