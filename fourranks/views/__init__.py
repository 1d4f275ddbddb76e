"""Views of ranks for people at work. They read recorded facts and change nothing."""
