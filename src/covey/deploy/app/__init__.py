"""The Flower app of a deployment: what `flwr run` sends to the SuperLink and to every SuperNode."""
