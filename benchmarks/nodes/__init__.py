"""Worlds over two nodes, beside what else starts processes on two nodes: `python -m benchmarks.nodes`.

contenders   what is measured, each in an interpreter of its own
trainer      the actor that peers have on each rank
__main__     makes the nodes, has all measured in turns, and writes benchmarks/nodes.md
"""
