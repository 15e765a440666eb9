"""The stages of a run joined by Ray Data, over as many machines as a cluster has."""
