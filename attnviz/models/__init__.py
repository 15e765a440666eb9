"""From a model name or a checkpoint to a loaded backbone."""
