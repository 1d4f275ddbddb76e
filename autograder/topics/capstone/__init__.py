"""The capstone: a strategy trains a model on a simulated cluster, and its cost ranks the class."""

from autograder.topics.capstone.strategy import strategy
