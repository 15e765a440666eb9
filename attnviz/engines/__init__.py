"""Where the stages run: this machine, or a Ray cluster."""
