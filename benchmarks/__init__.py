"""Four Ranks beside its peers: `make bench` measures them in one run and makes one table, `results.md`.

One module measures one thing. Its functions are generators, one for each contender: each `next` takes one
measurement, and closing the generator ends all that it started.
"""
