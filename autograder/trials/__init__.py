"""The kinds of trials that checks share: on which ranks, with which inputs, under which rules."""
