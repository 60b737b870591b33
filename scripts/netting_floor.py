"""The floor of `settlenet bench --only netting`: how long OR-tools' min-cost flow takes for a graph.

usage: python3 scripts/netting_floor.py GRAPH REPEATS, with PYTHONPATH=.local/toolchain/ortools
GRAPH is a file of lines "debtor,creditor,amount" below a header, brokers from 0 without gaps, amounts
in minor units. Prints one JSON object: the version of OR-tools, medians in milliseconds of building
and of solving and of both together, and the optimum in minor units.

Every obligation is an arc from debtor to creditor that carries at most its amount and earns one a
unit; nobody has any supply. So the cheapest flow is the largest circulation. Reading the file is
not counted, as making the graph isn't on our side.
"""
import json
import statistics
import sys
import time

import numpy
import ortools
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow


def main():
    graph = numpy.loadtxt(sys.argv[1], delimiter=",", skiprows=1, dtype=numpy.int64, ndmin=2)
    debtors, creditors, amounts = (numpy.ascontiguousarray(column) for column in graph.T)
    building, solving, both = [], [], []
    for _ in range(int(sys.argv[2])):
        begun = time.perf_counter()
        flow = SimpleMinCostFlow()
        flow.add_arcs_with_capacity_and_unit_cost(
            debtors, creditors, amounts, numpy.full(len(amounts), -1, dtype=numpy.int64)
        )
        built = time.perf_counter()
        status = flow.solve()
        solved = time.perf_counter()
        if status != flow.OPTIMAL:
            sys.exit(f"OR-tools ends with {status}")
        building.append(built - begun)
        solving.append(solved - built)
        both.append(solved - begun)

    def median(times):
        return statistics.median(times) * 1000

    print(json.dumps({
        "version": ortools.__version__,
        "building_ms": median(building),
        "solving_ms": median(solving),
        "both_ms": median(both),
        "optimum": -flow.optimal_cost(),
    }))


main()
